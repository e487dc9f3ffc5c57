// wgmma of bfloat16 for 16 and 32 tokens; see wgmma_registers.cuh.
#pragma once

#include "cuda/device/elements.cuh"
#include "cuda/device/wgmma_group.cuh"

namespace octalane::cuda {

__device__ __forceinline__ void wgmma(Bf16, float (&d)[8], const uint32_t (&weights)[4], uint64_t tile, int fresh) {
  asm volatile(
      "{ .reg .pred p; setp.eq.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(tile), "r"(fresh));
}

__device__ __forceinline__ void wgmma(Bf16, float (&d)[16], const uint32_t (&weights)[4], uint64_t tile, int fresh) {
  asm volatile(
      "{ .reg .pred p; setp.eq.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(tile), "r"(fresh));
}

}  // namespace octalane::cuda
