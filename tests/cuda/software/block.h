// A block of threads of a device that take turns on one thread of the host, each until it waits for others; and what
// CUDA C++ has of itself: enough for device code without instructions of its own (the headers beside cuda/device/).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace octalane::test {

/// What a lane shows the others of its warp.
using LaneWords = std::array<uint32_t, 6>;
using WarpWords = std::array<LaneWords, 32>;

inline constexpr int kSoftwareShared = 99 * 1024;

/// Memory of the device that copies may read.
using Readable = std::vector<std::span<const std::byte>>;

/// Runs `body` as all threads of block `block`. Its memory has other contents than zero before. "" or what went wrong
/// first: an address outside `shared_bytes`, a copy from outside `readable`, either not aligned.
std::string run_block(int block, int threads, int shared_bytes, const Readable& readable,
                      const std::function<void()>& body);

void sync_threads();
void sync_warp();
/// Waits for the warp.
const WarpWords& show_warp(const LaneWords& words);

/// Memory of the block from `at` on; of other memory, if it does not lie in the block's.
uint8_t* block_memory(uint32_t at, uint32_t bytes);

/// Copies that are done when they are waited for, no earlier.
void begin_copy(uint32_t to, const void* from);
void commit_copies();
void wait_for_copies(int pending);

}  // namespace octalane::test

namespace octalane::cuda {

struct ThreadIndex {
  unsigned x = 0;
};
extern ThreadIndex threadIdx, blockIdx;
alignas(128) extern uint8_t shared[test::kSoftwareShared];

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};

using std::min;
inline void __syncthreads() { test::sync_threads(); }
inline void __syncwarp() { test::sync_warp(); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }

}  // namespace octalane::cuda
