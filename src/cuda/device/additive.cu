// The product kernels for codebooks, by name, and what stages their activations.
#include "cuda/activation_args.h"
#include "cuda/additive_list.h"
#include "cuda/device/additive.cuh"

namespace octalane::cuda {

#define ADDITIVE(name, ...)                                                             \
  extern "C" __global__ void __launch_bounds__(AdditiveShape<__VA_ARGS__>::kThreads, 1) \
      name(const __grid_constant__ AdditiveArgs args) {                                 \
    additive<AdditiveShape<__VA_ARGS__>>(args);                                         \
  }
OCTALANE_ADDITIVES(ADDITIVE)

__device__ __forceinline__ float value_of(float x) { return x; }
__device__ __forceinline__ float value_of(uint16_t x) { return __uint_as_float(uint32_t{x} << 16); }

/// A token, rounded to bfloat16 in the order of codeword_position; a thread writes eight neighbours.
template <class T>
__device__ __forceinline__ void stage_token(const ActivationArgs& args) {
  const auto* const x = static_cast<const T*>(args.x) + blockIdx.x * args.x_stride;
  auto* const to = static_cast<uint16_t*>(args.staged) + int64_t{blockIdx.x} * args.padded_cols;
  for (int at = static_cast<int>(threadIdx.x) * 8; at < args.padded_cols; at += static_cast<int>(blockDim.x) * 8) {
    const int first = at / 32 * 32 + at % 32 / 16 * 4 + at % 16 / 8 * 2;
    uint32_t words[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int k = first + c * 8;
      words[c] = pack_bf16(k < args.cols ? value_of(x[k]) : 0.0f, k + 1 < args.cols ? value_of(x[k + 1]) : 0.0f);
    }
    *reinterpret_cast<uint4*>(to + at) = uint4{words[0], words[1], words[2], words[3]};
  }
}

extern "C" __global__ void __launch_bounds__(1024) stage_codewords_f32(const __grid_constant__ ActivationArgs args) {
  stage_token<float>(args);
}
extern "C" __global__ void __launch_bounds__(1024) stage_codewords_bf16(const __grid_constant__ ActivationArgs args) {
  stage_token<uint16_t>(args);
}

}  // namespace octalane::cuda
