// Copies of 16 bytes from global to shared memory beside other work (PTX ISA, cp.async; sm_80).
#pragma once

#include <cstdint>

namespace octalane::cuda {

/// Both aligned to 16 bytes. Takes no place in L1.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// The copies of this thread since the last time are a group.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most the `Pending` latest groups of this thread are under way.
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace octalane::cuda
