// The kernels for few tokens, by code, columns of a scale group and tokens at most.
#include "cuda/device/gemv.cuh"

namespace octalane::cuda {

#define OCTALANE_GEMV(code, group, tokens, held, blocks)                        \
  extern "C" __global__ void __launch_bounds__(kGemvThreads, blocks)            \
      gemv_##code##_##group##_##tokens(const __grid_constant__ GemvArgs args) { \
    gemv<Code::code, 64 / group, tokens / 8, held>(args);                       \
  }
OCTALANE_GEMV(nibble, 16, 8, 64, 2)
OCTALANE_GEMV(nibble, 32, 8, 64, 2)
OCTALANE_GEMV(nibble, 64, 8, 64, 2)
OCTALANE_GEMV(nibble, 16, 16, 56, 2)
OCTALANE_GEMV(nibble, 32, 16, 56, 2)
OCTALANE_GEMV(nibble, 64, 16, 56, 2)
OCTALANE_GEMV(table, 16, 8, 64, 2)
OCTALANE_GEMV(table, 32, 8, 64, 2)
OCTALANE_GEMV(table, 64, 8, 64, 2)
OCTALANE_GEMV(table, 16, 16, 56, 2)
OCTALANE_GEMV(table, 32, 16, 56, 2)
OCTALANE_GEMV(table, 64, 16, 56, 2)
OCTALANE_GEMV(byte, 16, 8, 64, 2)
OCTALANE_GEMV(byte, 32, 8, 64, 2)
OCTALANE_GEMV(byte, 64, 8, 64, 2)
OCTALANE_GEMV(byte, 16, 16, 56, 2)
OCTALANE_GEMV(byte, 32, 16, 56, 2)
OCTALANE_GEMV(byte, 64, 16, 56, 2)

/// y = the sum of the slices that the others left.
extern "C" __global__ void __launch_bounds__(kGemvThreads) gemv_sum(const __grid_constant__ GemvArgs args) {
  wait_for_previous();
  const int n = static_cast<int>(blockIdx.x) * kGemvThreads + static_cast<int>(threadIdx.x), token = blockIdx.y;
  if (n >= args.rows) return;
  const float* from = args.partials + static_cast<int64_t>(token) * args.padded_rows + n;
  const int64_t slice = static_cast<int64_t>(args.tokens) * args.padded_rows;
  float sum = from[0];
  for (int s = 1; s < args.slices; ++s) sum += from[s * slice];
  args.y[token * args.y_stride + n] = sum;
}

}  // namespace octalane::cuda
