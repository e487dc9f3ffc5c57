#include "kernels/vnni/kernels.h"
#include "kernels/vnni/probe_vectors.h"

namespace octalane::vnni {
namespace {

struct Fma {
  using Vector = __m512;
  using Accumulator = __m512;
  static constexpr int kOps = 2 * 16;
  static constexpr int kUnit = 4;
  OCTALANE_INLINE static Accumulator zero() { return _mm512_setzero_ps(); }
  OCTALANE_INLINE static Vector load(const std::byte* p) { return _mm512_load_ps(p); }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    float unit;
    __builtin_memcpy(&unit, p, sizeof unit);
    return _mm512_set1_ps(unit);
  }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) { _mm512_store_ps(p, sum); }
};

/// Unsigned weights times signed activations.
struct Dot : DotOperands {
  using Accumulator = __m512i;
  static constexpr int kOps = 2 * 64;
  OCTALANE_INLINE static Accumulator zero() { return _mm512_setzero_si512(); }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) { _mm512_store_si512(p, sum); }
};

struct Drain {
  using Sum = __m512;
  OCTALANE_INLINE static Sum zero_sum() { return _mm512_setzero_ps(); }
  OCTALANE_INLINE static void add(__m512i dots, const ProbeArgs& args, int vector, int token, Sum& sum) {
    const __m512 scale = _mm512_load_ps(args.scales + 16 * vector), bias = _mm512_load_ps(args.biases + 16 * vector);
    const __m512 code_sum = _mm512_set1_ps(args.scales[32 + token]);
    const __m512 activation_scale = _mm512_set1_ps(args.scales[48 + token]);
    const __m512 term = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots), _mm512_mul_ps(bias, code_sum));
    sum = _mm512_fmadd_ps(activation_scale, term, sum);
  }
  OCTALANE_INLINE static void store_sum(std::byte* p, Sum sum) { _mm512_store_ps(p, sum); }
};

using DotRegisters = RegisterLoop<Dot, 16>;
using DotLoaded = LoadedLoop<Dot, 8, kGemmTiles>;
template <int DrainColumns>
using DotDrain = DrainLoop<Dot, Drain, kS8Tokens, kGemmTiles, 4096, DrainColumns>;
using FmaRegisters = RegisterLoop<Fma, 16>;
using FmaLoaded = LoadedLoop<Fma, 8, kGemmTiles>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<DotRegisters>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::registers),
    probe_row<DotLoaded>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::loaded),
    probe_row<DotDrain<32>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_32),
    probe_row<DotDrain<256>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_256),
    probe_row<DotDrain<4096>>("vpdpbusd", Lane::s8, ProbeElement::s8, ProbeKind::drain_row),
    probe_row<FmaRegisters>("vfmadd231ps", Lane::bf16, ProbeElement::f32, ProbeKind::registers),
    probe_row<FmaLoaded>("vfmadd231ps", Lane::bf16, ProbeElement::f32, ProbeKind::loaded),
};

uint64_t read_memory(const std::byte* data, int64_t bytes) {
  __m512i seen[4] = {};
  for (const std::byte* end = data + bytes; data < end; data += 512) {
    for (int i = 0; i < 8; ++i) seen[i % 4] = _mm512_or_si512(seen[i % 4], _mm512_load_si512(data + 64 * i));
  }
  const __m512i all = _mm512_or_si512(_mm512_or_si512(seen[0], seen[1]), _mm512_or_si512(seen[2], seen[3]));
  return static_cast<uint64_t>(_mm512_reduce_or_epi64(all));
}

}  // namespace octalane::vnni
