// The kernels for few tokens, by code, columns of a scale group and tokens at most.
#include "cuda/device/gemv.cuh"

namespace octalane::cuda {

#define OCTALANE_GEMV(code, group, tokens, held)                                \
  extern "C" __global__ void __launch_bounds__(kGemvThreads, 1)                 \
      gemv_##code##_##group##_##tokens(const __grid_constant__ GemvArgs args) { \
    gemv<Code::code, 64 / group, tokens, held>(args);                           \
  }
#define OCTALANE_GEMVS(code, group) \
  OCTALANE_GEMV(code, group, 1, 64) \
  OCTALANE_GEMV(code, group, 4, 64) \
  OCTALANE_GEMV(code, group, 8, 56) \
  OCTALANE_GEMV(code, group, 16, 40)
OCTALANE_GEMVS(nibble, 16)
OCTALANE_GEMVS(nibble, 32)
OCTALANE_GEMVS(nibble, 64)
OCTALANE_GEMVS(table, 16)
OCTALANE_GEMVS(table, 32)
OCTALANE_GEMVS(table, 64)
OCTALANE_GEMVS(byte, 16)
OCTALANE_GEMVS(byte, 32)
OCTALANE_GEMVS(byte, 64)

/// y = the sum of the slices that the others left.
extern "C" __global__ void __launch_bounds__(kGemvSumThreads) gemv_sum(const __grid_constant__ GemvArgs args) {
  wait_for_previous();
  const int n = static_cast<int>(blockIdx.x) * kGemvSumThreads + static_cast<int>(threadIdx.x), token = blockIdx.y;
  if (n >= args.rows) return;
  const float* from = args.partials + static_cast<int64_t>(token) * args.padded_rows + n;
  const int64_t slice = static_cast<int64_t>(args.tokens) * args.padded_rows;
  float sum = from[0];
  for (int s = 1; s < args.slices; ++s) sum += from[s * slice];
  args.y[token * args.y_stride + n] = sum;
}

}  // namespace octalane::cuda
