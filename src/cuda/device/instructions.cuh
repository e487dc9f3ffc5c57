// Instructions that CUDA C++ has no name for, or none that says all of them (PTX ISA).
#pragma once

#include <cstdint>

namespace octalane::cuda {

/// Lets the next kernel of the stream begin, if it was launched to overlap with this one: it waits by itself before it
/// reads what this one writes. Nothing otherwise, and before sm_90.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Until the kernels before this one in the stream are done and their stores visible, where it was let begin earlier.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// What a block's time is told by.
struct BlockClocks {
  uint64_t clocks, nanoseconds;
  __device__ __forceinline__ static BlockClocks now() {
    BlockClocks t;
    t.clocks = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t.nanoseconds));
    return t;
  }
};

/// Words that are read once: they take no place in L1.
template <int Words>
__device__ __forceinline__ void stream(const void* from, uint32_t (&v)[Words]) {
  static_assert(Words == 1 || Words == 2 || Words == 4);
  if constexpr (Words == 1) {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v[0]) : "l"(from));
  } else if constexpr (Words == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(from));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from));
  }
}
__device__ __forceinline__ uint32_t stream_32(const void* from) {
  uint32_t v[1];
  stream(from, v);
  return v[0];
}
__device__ __forceinline__ uint32_t stream_16(const void* from) {
  uint16_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(from));
  return v;
}
/// A word of read-only data that neighbours read too.
__device__ __forceinline__ uint32_t cached_32(const void* from) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

/// 16 bytes from memory to shared memory, or zeros; on their way until this thread has waited for them.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from, bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
/// Ends a group of them; and waits until at most `Pending` groups are on their way.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Four of the eight bytes of a and b, by the nibbles of the selector; its bit 3 repeats the byte's sign.
__device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}
/// fp32 of the binary16 in the low 16 bits.
__device__ __forceinline__ float widen_f16(uint32_t bits) {
  float value;
  asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "r"(bits));
  return value;
}
/// Two bfloat16, the first in the low half: to nearest-even.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// a * b + c of pairs of bfloat16, rounded once.
__device__ __forceinline__ uint32_t fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
/// Two binary16, the first in the low half: to nearest-even.
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// d += a * b, 16 rows by 8 columns by 16 of K; with `fresh` d starts at zero.
#define OCTALANE_MMA_16(name, shape)                                                                                \
  __device__ __forceinline__ void name(float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1, bool fresh) { \
    if (fresh) {                                                                                                    \
      asm("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"                    \
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                          \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));                               \
    } else {                                                                                                        \
      asm("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                        \
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                          \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                          \
    }                                                                                                               \
  }
OCTALANE_MMA_16(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
OCTALANE_MMA_16(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
#undef OCTALANE_MMA_16

/// d += a * b, 16 rows by 8 columns by 32 of K.
__device__ __forceinline__ void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// d = a * b + c, c of all results.
__device__ __forceinline__ void mma_s8_from(int c, int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}

/// Four matrices of 8 rows by 16 bytes from shared memory: lane 8 i + r says where row r of matrix i lies, and gets
/// bytes 4 (lane % 4) on of row lane / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t at, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at)
               : "memory");
}

#if __CUDA_ARCH__ >= 890
/// Two E4M3, the first in the low byte: to nearest-even, saturating.
__device__ __forceinline__ uint32_t pack_e4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
#endif

#if __CUDA_ARCH__ >= 900
/// Every thread of every block of the cluster; shared memory written before is visible to all behind it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
/// What lies in shared memory of block `rank` of the cluster where `at` lies in this block's.
__device__ __forceinline__ float cluster_f32(uint32_t at, int rank) {
  float v;
  asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.f32 %0, [a]; }"
               : "=f"(v)
               : "r"(at), "r"(rank)
               : "memory");
  return v;
}
#endif

}  // namespace octalane::cuda
