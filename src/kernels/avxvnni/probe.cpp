#include <immintrin.h>

#include "kernels/avxvnni/kernels.h"
#include "kernels/probe_loops.h"

namespace octalane::avxvnni {
namespace {

/// Unsigned weights times signed activations.
struct Dot {
  using Vector = __m256i;
  using Accumulator = __m256i;
  static constexpr int kOps = 2 * 32;
  static constexpr int kUnit = 4;
  OCTALANE_INLINE static Accumulator zero() { return _mm256_setzero_si256(); }
  OCTALANE_INLINE static Vector load(const std::byte* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, sizeof unit);
    return _mm256_set1_epi32(unit);
  }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), sum);
  }
};

struct Drain {
  using Sum = __m256;
  OCTALANE_INLINE static Sum zero_sum() { return _mm256_setzero_ps(); }
  OCTALANE_INLINE static void add(__m256i dots, const ProbeArgs& args, int vector, int token, Sum& sum) {
    const __m256 scale = _mm256_load_ps(args.scales + 8 * vector), bias = _mm256_load_ps(args.biases + 8 * vector);
    const __m256 code_sum = _mm256_broadcast_ss(args.scales + 32 + token);
    const __m256 activation_scale = _mm256_broadcast_ss(args.scales + 48 + token);
    const __m256 term = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), _mm256_mul_ps(bias, code_sum));
    sum = _mm256_fmadd_ps(activation_scale, term, sum);
  }
  OCTALANE_INLINE static void store_sum(std::byte* p, Sum sum) { _mm256_store_ps(reinterpret_cast<float*>(p), sum); }
};

constexpr int kVectors = 2;  // the sixteen rows of a tile
using Registers = RegisterLoop<Dot, 12>;
using Loaded = LoadedLoop<Dot, 6, kVectors>;
template <int DrainColumns>
using Drained = DrainLoop<Dot, Drain, kS8Tokens, kVectors, 4096, DrainColumns>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<Registers>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::registers),
    probe_row<Loaded>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::loaded),
    probe_row<Drained<32>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_32),
    probe_row<Drained<256>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_256),
    probe_row<Drained<4096>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_row),
};

}  // namespace octalane::avxvnni
