#include "kernels/avx2/kernels.h"
#include "kernels/avx2/probe_vectors.h"

namespace octalane::avx2 {
namespace {

struct Fma {
  using Vector = __m256;
  using Accumulator = __m256;
  static constexpr int kOps = 2 * 8;
  static constexpr int kUnit = 4;
  OCTALANE_INLINE static Accumulator zero() { return _mm256_setzero_ps(); }
  OCTALANE_INLINE static Vector load(const std::byte* p) { return _mm256_load_ps(reinterpret_cast<const float*>(p)); }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
  }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) {
    _mm256_store_ps(reinterpret_cast<float*>(p), sum);
  }
};

/// Unsigned weights times signed activations: the sequence that makes int32 sums of int8 products without VNNI.
struct Maddubs : ByteOperands {
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    Vector product;
    asm volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                 : "+x"(sum), "=&x"(product)
                 : "x"(w), "x"(x), "x"(_mm256_set1_epi16(1)));
  }
};

constexpr int kVectors = 2;  // the sixteen rows of a tile
using MaddubsRegisters = RegisterLoop<Maddubs, 8>;
using MaddubsLoaded = LoadedLoop<Maddubs, 4, kVectors>;
template <int DrainColumns>
using MaddubsDrain = DrainLoop<Maddubs, Drain, kS8Tokens, kVectors, 4096, DrainColumns>;
using FmaRegisters = RegisterLoop<Fma, 12>;
using FmaLoaded = LoadedLoop<Fma, kBf16Tokens, kVectors>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<MaddubsRegisters>("vpmaddubsw", Lane::s8, ProbeElement::s8, ProbeKind::registers),
    probe_row<MaddubsLoaded>("vpmaddubsw", Lane::s8, ProbeElement::s8, ProbeKind::loaded),
    probe_row<MaddubsDrain<32>>("vpmaddubsw", Lane::s8, ProbeElement::s8, ProbeKind::drain_32),
    probe_row<MaddubsDrain<256>>("vpmaddubsw", Lane::s8, ProbeElement::s8, ProbeKind::drain_256),
    probe_row<MaddubsDrain<4096>>("vpmaddubsw", Lane::s8, ProbeElement::s8, ProbeKind::drain_row),
    probe_row<FmaRegisters>("vfmadd231ps", Lane::bf16, ProbeElement::f32, ProbeKind::registers),
    probe_row<FmaLoaded>("vfmadd231ps", Lane::bf16, ProbeElement::f32, ProbeKind::loaded),
};

uint64_t read_memory(const std::byte* data, int64_t bytes) {
  __m256i seen[4] = {};
  for (const std::byte* end = data + bytes; data < end; data += 256) {
    for (int i = 0; i < 8; ++i) {
      seen[i % 4] = _mm256_or_si256(seen[i % 4], _mm256_load_si256(reinterpret_cast<const __m256i*>(data) + i));
    }
  }
  const __m256i all = _mm256_or_si256(_mm256_or_si256(seen[0], seen[1]), _mm256_or_si256(seen[2], seen[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) | _mm256_extract_epi64(all, 1) |
                               _mm256_extract_epi64(all, 2) | _mm256_extract_epi64(all, 3));
}

}  // namespace octalane::avx2
