// The kernels that cuda/probe.cpp launches by name. Each writes every accumulator, a word each, and the clocks of block
// 0.
#include "cuda/device/mma.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "cuda/device/wgmma.cuh"
#endif

namespace octalane::cuda {

#define OCTALANE_MMA_KERNEL(name, Type)                                                                            \
  extern "C" __global__ void __launch_bounds__(MmaShape::kThreads, 1)                                              \
      mma_##name(const uint32_t* operands, const float*, uint32_t* out, long long iterations, long long* clocks) { \
    mma_loop<Type>(operands, out, iterations, clocks);                                                             \
  }
#define OCTALANE_MMA_DRAIN_KERNEL(name, Type, columns)                                                         \
  extern "C" __global__ void __launch_bounds__(MmaShape::kThreads, 1) mma_##name##_drain_##columns(            \
      const uint32_t* operands, const float* scales, uint32_t* out, long long iterations, long long* clocks) { \
    mma_drain_loop<Type, columns>(operands, scales, out, iterations, clocks);                                  \
  }
OCTALANE_MMA_KERNEL(s8, S8)
OCTALANE_MMA_DRAIN_KERNEL(s8, S8, 32)
OCTALANE_MMA_DRAIN_KERNEL(s8, S8, 128)
OCTALANE_MMA_DRAIN_KERNEL(s8, S8, 256)
OCTALANE_MMA_KERNEL(bf16, Bf16)
OCTALANE_MMA_KERNEL(f16, F16)
#if __CUDA_ARCH__ >= 890
OCTALANE_MMA_KERNEL(e4m3, E4m3)
OCTALANE_MMA_DRAIN_KERNEL(e4m3, E4m3, 32)
OCTALANE_MMA_DRAIN_KERNEL(e4m3, E4m3, 128)
OCTALANE_MMA_DRAIN_KERNEL(e4m3, E4m3, 256)
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define OCTALANE_WGMMA_KERNEL(name, Type)                                                                      \
  extern "C" __global__ void __launch_bounds__(WgmmaShape::kThreads, 1) wgmma_##name(                          \
      const uint32_t* operands, const float* scales, uint32_t* out, long long iterations, long long* clocks) { \
    wgmma_loop<Type>(operands, scales, out, iterations, clocks);                                               \
  }
#define OCTALANE_WGMMA_DRAIN_KERNEL(name, Type, columns)                                                       \
  extern "C" __global__ void __launch_bounds__(WgmmaShape::kThreads, 1) wgmma_##name##_drain_##columns(        \
      const uint32_t* operands, const float* scales, uint32_t* out, long long iterations, long long* clocks) { \
    wgmma_drain_loop<Type, columns>(operands, scales, out, iterations, clocks);                                \
  }
OCTALANE_WGMMA_KERNEL(s8, S8)
OCTALANE_WGMMA_DRAIN_KERNEL(s8, S8, 32)
OCTALANE_WGMMA_DRAIN_KERNEL(s8, S8, 128)
OCTALANE_WGMMA_DRAIN_KERNEL(s8, S8, 256)
OCTALANE_WGMMA_KERNEL(e4m3, E4m3)
OCTALANE_WGMMA_DRAIN_KERNEL(e4m3, E4m3, 32)
OCTALANE_WGMMA_DRAIN_KERNEL(e4m3, E4m3, 128)
OCTALANE_WGMMA_DRAIN_KERNEL(e4m3, E4m3, 256)
OCTALANE_WGMMA_KERNEL(bf16, Bf16)
OCTALANE_WGMMA_KERNEL(f16, F16)
#endif

/// Fills `words` words: with ones, or with noise when `noise` is not 0.
extern "C" __global__ void fill_words(uint32_t* data, long long words, uint32_t noise) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435769u + noise;
    x = (x ^ x >> 16) * 2246822519u;
    data[i] = noise == 0 ? 1 : x ^ x >> 13;
  }
}

__device__ __forceinline__ uint4 load_past_l1(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

/// Reads `granules` granules `passes` times, a granule being kReadUnroll vectors of 16 bytes a thread; every thread
/// writes the sum of its words. A thread reads the same addresses in each pass: blocks drift apart, and would otherwise
/// find in L2 what others read just before.
extern "C" __global__ void __launch_bounds__(kReadThreads)
    read_memory(const uint4* data, long long granules, long long passes, uint32_t* out) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t sum = 0;
#pragma unroll 1
  for (long long pass = 0; pass < passes; ++pass) {
    const uint4* from = data + first;
#pragma unroll 1
    for (long long granule = 0; granule < granules; ++granule, from += kReadUnroll * stride) {
      uint4 v[kReadUnroll];
#pragma unroll
      for (int u = 0; u < kReadUnroll; ++u) v[u] = load_past_l1(from + u * stride);
#pragma unroll
      for (int u = 0; u < kReadUnroll; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
  }
  out[first] = sum;
}

}  // namespace octalane::cuda
