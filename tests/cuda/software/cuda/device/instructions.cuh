// The instructions of threads and warps in software, as the PTX ISA says which lane holds what.
#pragma once

#include "core/half.h"
#include "cuda/software/block.h"

namespace octalane::cuda {

struct BlockClocks {
  uint64_t clocks = 0, nanoseconds = 0;
  static BlockClocks now() { return {}; }
};

inline void copy_16(uint32_t to, const void* from) { test::begin_copy(to, from); }
inline void copies_commit() { test::commit_copies(); }
template <int Pending>
void copies_wait() {
  test::wait_for_copies(Pending);
}

inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t d = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t which = selector >> 4 * i & 15;
    auto byte = static_cast<uint8_t>(bytes >> which % 8 * 8);
    if (which >= 8) byte = byte >= 128 ? 255 : 0;
    d |= uint32_t{byte} << 8 * i;
  }
  return d;
}

inline float widen_f16(uint32_t bits) { return f16_to_f32(static_cast<uint16_t>(bits)); }
inline float low_bf16(uint32_t pair) { return bf16_to_f32(static_cast<uint16_t>(pair)); }
inline float high_bf16(uint32_t pair) { return bf16_to_f32(static_cast<uint16_t>(pair >> 16)); }
inline uint32_t pack_bf16(float low, float high) { return f32_to_bf16(low) | uint32_t{f32_to_bf16(high)} << 16; }

/// Of values whose fp32 result is a bfloat16, so that one rounding is none.
inline uint32_t fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
  return pack_bf16(std::fmaf(low_bf16(a), low_bf16(b), low_bf16(c)),
                   std::fmaf(high_bf16(a), high_bf16(b), high_bf16(c)));
}

inline void load_matrices(uint32_t at, uint32_t (&m)[4]) {
  const test::WarpWords& warp = test::show_warp({at});
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t i = 0; i < 4; ++i) {
    test::block_memory(warp[8 * i + lane / 4][0], 16);  // a row is aligned
    std::memcpy(&m[i], test::block_memory(warp[8 * i + lane / 4][0] + lane % 4 * 4, 4), 4);
  }
}

/// The sums of products of a lane's results e: rows lane / 4 + 8 (e / 2), columns 2 (lane % 4) + e % 2. A register of
/// either operand has four bytes of K, of which add(sum, a, b) takes all.
template <class Sum, class Add>
void multiply_warp(Sum (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Add add) {
  const test::WarpWords& warp = test::show_warp({a[0], a[1], a[2], a[3], b0, b1});
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t e = 0; e < 4; ++e) {
    const uint32_t row = lane / 4, column = lane % 4 * 2 + e % 2;
    for (uint32_t k = 0; k < 8; ++k)
      add(sums[e], warp[row * 4 + k % 4][e / 2 + k / 4 * 2], warp[column * 4 + k % 4][4 + k / 4]);
  }
}

inline void mma_s8_from(int c, int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  int sums[4] = {c, c, c, c};
  multiply_warp(sums, a, b0, b1, [](int& sum, uint32_t x, uint32_t y) {
    for (int i = 0; i < 32; i += 8) sum += static_cast<int8_t>(x >> i) * static_cast<int8_t>(y >> i);
  });
  std::copy_n(sums, 4, d);
}
inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  int sums[4];
  mma_s8_from(0, sums, a, b0, b1);
  for (int e = 0; e < 4; ++e) d[e] += sums[e];
}
/// Rounded once.
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool fresh) {
  double sums[4] = {};
  for (int e = 0; !fresh && e < 4; ++e) sums[e] = double{d[e]};
  multiply_warp(sums, a, b0, b1, [](double& sum, uint32_t x, uint32_t y) {
    sum += double{low_bf16(x)} * low_bf16(y) + double{high_bf16(x)} * high_bf16(y);
  });
  for (int e = 0; e < 4; ++e) d[e] = static_cast<float>(sums[e]);
}

}  // namespace octalane::cuda
