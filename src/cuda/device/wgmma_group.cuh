// What every use of wgmma needs around the instruction (PTX ISA, asynchronous warpgroup level matrix instructions).
#pragma once

#include <cstdint>

namespace octalane::cuda {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Rows of 128 bytes in the 128-byte swizzle, 1024 bytes from one eight of rows to the next.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return uint64_t{(address & 0x3FFFF) >> 4} | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/// The same, of an address in units of 16 bytes: only the lower word changes.
__device__ __forceinline__ uint64_t descriptor_of(uint32_t sixteens) {
  uint64_t whole;
  asm("mov.b64 %0, {%1, %2};" : "=l"(whole) : "r"(sixteens | 1u << 16), "r"(64u | 1u << 30));
  return whole;
}

/// 16 bfloat16 columns of K, unswizzled: 8 rows of 16 bytes follow each other, the second half of K behind the first.
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t address) {
  return uint64_t{(address & 0x3FFFF) >> 4} | 8ull << 16 | 16ull << 32;
}

}  // namespace octalane::cuda
