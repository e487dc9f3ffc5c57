// What the probe loops share: arguments, drains, clocks. Device code includes nothing of the host's rooms.
#pragma once

#include <cstdint>

#include "cuda/device/elements.cuh"
#include "cuda/probe_shapes.h"

namespace octalane::cuda {

__device__ __forceinline__ uint32_t bits(int value) { return static_cast<uint32_t>(value); }
__device__ __forceinline__ uint32_t bits(float value) { return __float_as_uint(value); }

/// The drain of one output: one conversion where the accumulator is an integer, one product of scales, one fma.
template <class Sum>
__device__ __forceinline__ float drained(Sum sum, float weight_scale, float token_scale, float total) {
  return fmaf(static_cast<float>(sum), weight_scale * token_scale, total);
}

/// Clocks that the first block took.
class BlockClock {
 public:
  __device__ __forceinline__ BlockClock() : start_(clock64()) {}
  __device__ __forceinline__ void store(long long* clocks) const {
    if (blockIdx.x == 0 && threadIdx.x == 0) *clocks = clock64() - start_;
  }

 private:
  long long start_;
};

}  // namespace octalane::cuda
