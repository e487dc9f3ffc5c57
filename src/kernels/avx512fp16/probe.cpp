#include <immintrin.h>

#include "kernels/avx512fp16/kernels.h"
#include "kernels/probe_loops.h"

namespace octalane::avx512fp16 {
namespace {

struct Fma {
  using Vector = __m512i;
  using Accumulator = __m512i;
  static constexpr int kOps = 2 * 32;
  static constexpr int kUnit = 2;
  OCTALANE_INLINE static Accumulator zero() { return _mm512_setzero_si512(); }
  OCTALANE_INLINE static Vector load(const std::byte* p) { return _mm512_load_si512(p); }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    int16_t unit;
    __builtin_memcpy(&unit, p, sizeof unit);
    return _mm512_set1_epi16(unit);
  }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("vfmadd231ph %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) { _mm512_store_si512(p, sum); }
};

using Registers = RegisterLoop<Fma, 16>;
using Loaded = LoadedLoop<Fma, 8, 2>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<Registers>("vfmadd231ph", Lane::f16, ProbeElement::f16, ProbeKind::registers),
    probe_row<Loaded>("vfmadd231ph", Lane::f16, ProbeElement::f16, ProbeKind::loaded),
};

}  // namespace octalane::avx512fp16
