// Loops of wgmma, Hopper's asynchronous product of a warpgroup: 64 rows by 128 tokens, both operands from shared
// memory.
#pragma once

#include "cuda/device/operands.cuh"
#include "cuda/device/wgmma_group.cuh"

namespace octalane::cuda {

constexpr int kWgmmaSums = WgmmaShape::kResults;

#define OCTALANE_D8(c, i)                                                                                            \
  "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3]), "+" c(d[i + 4]), "+" c(d[i + 5]), "+" c(d[i + 6]), \
      "+" c(d[i + 7])
/// One instruction over 32 bytes of K: sum += a * b. With `fresh` the sum starts at zero.
#define OCTALANE_WGMMA(Type, shape, constraint, immediates)                                                        \
  __device__ __forceinline__ void wgmma(Type, Type::Sum(&d)[kWgmmaSums], uint64_t a, uint64_t b, bool fresh) {     \
    asm volatile(                                                                                                  \
        "{ .reg .pred p; setp.eq.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128" shape                        \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
        "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
        "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p" immediates "; }"                                   \
        : OCTALANE_D8(constraint, 0), OCTALANE_D8(constraint, 8), OCTALANE_D8(constraint, 16),                     \
          OCTALANE_D8(constraint, 24), OCTALANE_D8(constraint, 32), OCTALANE_D8(constraint, 40),                   \
          OCTALANE_D8(constraint, 48), OCTALANE_D8(constraint, 56)                                                 \
        : "l"(a), "l"(b), "r"(static_cast<int>(fresh)));                                                           \
  }
OCTALANE_WGMMA(S8, "k32.s32.s8.s8", "r", "")
OCTALANE_WGMMA(E4m3, "k32.f32.e4m3.e4m3", "f", ", 1, 1")
OCTALANE_WGMMA(Bf16, "k16.f32.bf16.bf16", "f", ", 1, 1, 0, 0")
OCTALANE_WGMMA(F16, "k16.f32.f16.f16", "f", ", 1, 1, 0, 0")
#undef OCTALANE_WGMMA
#undef OCTALANE_D8

extern __shared__ __align__(1024) uint8_t wgmma_shared[];

/// Operands and scales into shared memory, and the descriptors of what a warpgroup reads.
class WgmmaTiles {
 public:
  __device__ __forceinline__ WgmmaTiles(const uint32_t* operands, const float* scales) {
    uint32_t* const words = reinterpret_cast<uint32_t*>(wgmma_shared);
    for (int i = threadIdx.x; i < WgmmaShape::kOperandBytes / 4; i += WgmmaShape::kThreads) words[i] = operands[i];
    for (int i = threadIdx.x; i < kScaleGroups * WgmmaShape::kScales; i += WgmmaShape::kThreads) {
      words[WgmmaShape::kOperandBytes / 4 + i] = bits(scales[i]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(wgmma_shared));
    tokens_ = descriptor(base);
    rows_ = descriptor(base + (WgmmaShape::kTokens + threadIdx.x / 128 * WgmmaShape::kRows) * 128);
  }
  /// Instruction `step` of an iteration.
  template <class Type>
  __device__ __forceinline__ void multiply(int step, typename Type::Sum (&sums)[kWgmmaSums], bool fresh) const {
    const uint64_t offset = (step / 4 * WgmmaShape::kStageBytes + step % 4 * 32) >> 4;
    wgmma(Type{}, sums, rows_ + offset, tokens_ + offset, fresh);
  }

 private:
  uint64_t tokens_, rows_;
};

template <class Value>
__device__ __forceinline__ void store_sums(const Value (&sums)[kWgmmaSums], uint32_t* out) {
  out += (blockIdx.x * WgmmaShape::kThreads + threadIdx.x) * kWgmmaSums;
#pragma unroll
  for (int i = 0; i < kWgmmaSums; ++i) out[i] = bits(sums[i]);
}

template <class Type>
__device__ __forceinline__ void wgmma_loop(const uint32_t* operands, const float* scales, uint32_t* out,
                                           long long iterations, long long* clocks) {
  const WgmmaTiles tiles(operands, scales);
  typename Type::Sum sums[kWgmmaSums] = {};
  const BlockClock clock;
#pragma unroll 1
  for (long long n = 0; n < iterations; ++n) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < WgmmaShape::kSteps; ++step) tiles.multiply<Type>(step, sums, false);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  pin_all(sums);
  store_sums(sums, out);
  clock.store(clocks);
}

/// As wgmma_loop, and every DrainColumns of K a warpgroup waits for its accumulators, scales them and adds them to fp32
/// totals while the tensor cores work for the other two.
template <class Type, int DrainColumns>
__device__ __forceinline__ void wgmma_drain_loop(const uint32_t* operands, const float* scales, uint32_t* out,
                                                 long long iterations, long long* clocks) {
  constexpr int kGroupSteps = DrainColumns / Type::kColumns;
  constexpr int kGroups = WgmmaShape::kSteps / kGroupSteps;  // an iteration
  const WgmmaTiles tiles(operands, scales);
  const int lane = threadIdx.x % 32;
  const float* const shared_scales = reinterpret_cast<const float*>(wgmma_shared + WgmmaShape::kOperandBytes);
  typename Type::Sum sums[kWgmmaSums] = {};
  float totals[kWgmmaSums] = {};
  const BlockClock clock;
#pragma unroll 1
  for (long long n = 0; n < iterations; ++n) {
#pragma unroll 1  // unrolled, the descriptors of all groups are kept in registers and accumulators spill
    for (int group = 0; group < kGroups; ++group) {
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step) {
        tiles.multiply<Type>(group * kGroupSteps + step, sums, step == 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      pin_all(sums);
      const int at = static_cast<int>(n * kGroups + group) % kScaleGroups * WgmmaShape::kScales;
      const volatile float* const rows = shared_scales + at + threadIdx.x / 32 * 16 + lane / 4;
      const volatile float* const tokens = shared_scales + at + WgmmaShape::kParts * WgmmaShape::kRows + lane % 4 * 2;
      const float scale[2] = {rows[0], rows[8]};
#pragma unroll
      for (int j = 0; j < WgmmaShape::kTokens / 8; ++j) {
        const float token[2] = {tokens[j * 8], tokens[j * 8 + 1]};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals[j * 4 + e] = drained(sums[j * 4 + e], scale[e / 2], token[e % 2], totals[j * 4 + e]);
        }
      }
    }
  }
  store_sums(totals, out);
  clock.store(clocks);
}

}  // namespace octalane::cuda
