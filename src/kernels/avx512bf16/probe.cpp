#include "kernels/avx512bf16/kernels.h"
#include "kernels/vnni/probe_vectors.h"

namespace octalane::avx512bf16 {
namespace {

/// Pairs of bfloat16 products added to fp32 sums.
struct Dot : vnni::DotOperands {
  using Accumulator = __m512;
  static constexpr int kOps = 2 * 32;
  OCTALANE_INLINE static Accumulator zero() { return _mm512_setzero_ps(); }
  OCTALANE_INLINE static void multiply_add(Accumulator& sum, Vector w, Vector x) {
    asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) { _mm512_store_ps(p, sum); }
};

using Registers = RegisterLoop<Dot, 16>;
using Loaded = LoadedLoop<Dot, 8, 2>;

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    probe_row<Registers>("vdpbf16ps", Lane::bf16, ProbeElement::bf16, ProbeKind::registers),
    probe_row<Loaded>("vdpbf16ps", Lane::bf16, ProbeElement::bf16, ProbeKind::loaded),
};

}  // namespace octalane::avx512bf16
