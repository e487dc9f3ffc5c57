// The product kernels of mma.sync, by name.
#include "cuda/device/gemm_mma_group.cuh"
#include "cuda/gemm_mma_list.h"

namespace octalane::cuda {

template <class S>
__device__ __forceinline__ void gemm_mma(const GemmMmaArgs& args) {
  extern __shared__ __align__(128) uint8_t shared[];
  const BlockClocks begin = BlockClocks::now();
  const MmaPlace place = MmaPlace::of(args, S{});
  if constexpr (S::kDrain == MmaDrain::group)
    multiply_groups<S>(args, place, shared);
  else if constexpr (S::kDrain == MmaDrain::nested)
    multiply_nested<S>(args, place, shared);
  else
    multiply_whole<S>(args, place, shared);
  if (args.clocks != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    const BlockClocks end = BlockClocks::now();
    args.clocks[0] = end.clocks - begin.clocks;
    args.clocks[1] = end.nanoseconds - begin.nanoseconds;
  }
}

#define GEMM(function, drain, code, form, least, ...)                                   \
  extern "C" __global__ void __launch_bounds__(                                         \
      GemmMmaShape<MmaDrain::drain, Code::code, Form::form, __VA_ARGS__>::kThreads,     \
      GemmMmaShape<MmaDrain::drain, Code::code, Form::form, __VA_ARGS__>::kResident)    \
      function(const __grid_constant__ GemmMmaArgs args) {                              \
    gemm_mma<GemmMmaShape<MmaDrain::drain, Code::code, Form::form, __VA_ARGS__>>(args); \
  }
OCTALANE_MMA_GEMMS(GEMM)

}  // namespace octalane::cuda
