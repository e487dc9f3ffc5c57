// Loops of mma.sync: 16 rows by 8 tokens, operands and accumulators in registers.
#pragma once

#include "cuda/device/operands.cuh"

namespace octalane::cuda {

/// One instruction: sum += a * b. With `fresh` the sum starts at zero.
#define OCTALANE_MMA(Type, shape, constraint, zero)                                                         \
  __device__ __forceinline__ void mma(Type, Type::Sum(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2], \
                                      bool fresh) {                                                         \
    if (fresh) {                                                                                            \
      asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"   \
                   : "=" constraint(d[0]), "=" constraint(d[1]), "=" constraint(d[2]), "=" constraint(d[3]) \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), constraint(zero));   \
    } else {                                                                                                \
      asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"       \
                   : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]) \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                     \
    }                                                                                                       \
  }
OCTALANE_MMA(S8, "m16n8k32.row.col.s32.s8.s8.s32", "r", 0)
OCTALANE_MMA(Bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", "f", 0.0f)
OCTALANE_MMA(F16, "m16n8k16.row.col.f32.f16.f16.f32", "f", 0.0f)
#if __CUDA_ARCH__ >= 890
OCTALANE_MMA(E4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", "f", 0.0f)
#endif
#undef OCTALANE_MMA

/// A warp's 16 accumulators are independent, and each instruction of one takes another pair of operands than the one
/// before.
constexpr int kMmaTiles = 4;

struct MmaTiles {
  uint32_t a[kMmaTiles][4], b[kMmaTiles][2], signs;

  /// 96 bytes a thread.
  __device__ __forceinline__ explicit MmaTiles(const uint32_t* operands) {
    for (int i = 0; i < kMmaTiles; ++i) {
      for (int r = 0; r < 4; ++r) a[i][r] = operands[(i * 4 + r) * MmaShape::kThreads + threadIdx.x];
      for (int r = 0; r < 2; ++r) b[i][r] = operands[(16 + i * 2 + r) * MmaShape::kThreads + threadIdx.x];
    }
    signs = a[0][0] & 0x80808080;
  }
  /// Other operands of 8 bits, finite and of the same size, for what comes next. The assembler of nvcc 13.0 sees when a
  /// product that starts at zero, or is emulated, comes again with the operands that it had, and computes it once.
  __device__ __forceinline__ void flip_tokens() {
#pragma unroll
    for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) b[i][r] ^= signs;
    }
    signs = __funnelshift_l(signs, signs, 8);
  }
  __device__ __forceinline__ void flip_rows() {
#pragma unroll
    for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[i][r] ^= signs;
    }
  }
};

template <class Type, class Sum>
__device__ __forceinline__ void mma_step(MmaTiles& tiles, Sum (&sums)[kMmaTiles][kMmaTiles][4], int step, bool fresh) {
#pragma unroll
  for (int i = 0; i < kMmaTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kMmaTiles; ++j) mma(Type{}, sums[i][j], tiles.a[(i + step) % 4], tiles.b[j], fresh);
  }
  if constexpr (Type::kEmulated) {
    tiles.flip_rows();
    tiles.flip_tokens();
  }
}

template <class Type>
__device__ __forceinline__ void mma_loop(const uint32_t* operands, uint32_t* out, long long iterations,
                                         long long* clocks) {
  MmaTiles tiles(operands);
  typename Type::Sum sums[kMmaTiles][kMmaTiles][4] = {};
  const BlockClock clock;
#pragma unroll 1
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int step = 0; step < MmaShape::kSteps; ++step) mma_step<Type>(tiles, sums, step, false);
  }
  out += (blockIdx.x * MmaShape::kThreads + threadIdx.x) * MmaShape::kResults;
#pragma unroll
  for (int i = 0; i < MmaShape::kResults; ++i) out[i] = bits(sums[i / 16][i / 4 % 4][i % 4]);
  clock.store(clocks);
}

/// As mma_loop, and every DrainColumns of K the accumulators are scaled, added to fp32 totals and start at zero again.
template <class Type, int DrainColumns>
__device__ __forceinline__ void mma_drain_loop(const uint32_t* operands, const float* scales, uint32_t* out,
                                               long long iterations, long long* clocks) {
  constexpr int kSteps = DrainColumns / Type::kColumns;
  constexpr int kGroups = MmaShape::kSteps / kSteps;  // an iteration
  __shared__ float shared[kScaleGroups * MmaShape::kScales];
  for (int i = threadIdx.x; i < kScaleGroups * MmaShape::kScales; i += MmaShape::kThreads) shared[i] = scales[i];
  __syncthreads();
  MmaTiles tiles(operands);
  float totals[kMmaTiles][kMmaTiles][4] = {};
  const int lane = threadIdx.x % 32;
  const BlockClock clock;
#pragma unroll 1
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      typename Type::Sum sums[kMmaTiles][kMmaTiles][4];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) mma_step<Type>(tiles, sums, group * kSteps + step, step == 0);
      if constexpr (!Type::kEmulated) tiles.flip_tokens();
      const int at = static_cast<int>(n * kGroups + group) % kScaleGroups * MmaShape::kScales;
      const volatile float* const rows = shared + at + lane / 4;
      const volatile float* const tokens = shared + at + MmaShape::kRows + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kMmaTiles; ++i) {
        const float scale[2] = {rows[i * 16], rows[i * 16 + 8]};
#pragma unroll
        for (int j = 0; j < kMmaTiles; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            totals[i][j][e] = drained(sums[i][j][e], scale[e / 2], tokens[j * 8 + e % 2], totals[i][j][e]);
          }
        }
      }
    }
  }
  out += (blockIdx.x * MmaShape::kThreads + threadIdx.x) * MmaShape::kResults;
#pragma unroll
  for (int i = 0; i < MmaShape::kResults; ++i) out[i] = bits(totals[i / 16][i / 4 % 4][i % 4]);
  clock.store(clocks);
}

}  // namespace octalane::cuda
