#include "cuda/device/gemm.cuh"
namespace octalane::cuda {
#define OCTALANE_GEMM(name, ...)                                                                                 \
  extern "C" __global__ void __launch_bounds__(GemmShape<__VA_ARGS__>::kThreads, 1)                              \
      name(const __grid_constant__ GemmArgs args) {                                                              \
    gemm<GemmShape<__VA_ARGS__>>(args);                                                                          \
  }
OCTALANE_GEMM(s8_row_128x256, S8, Code::nibble, Drain::row, 256, 2, 4)
}
