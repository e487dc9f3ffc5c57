// What the families share: walking blocks by memcpy, and taking packed codes apart and putting them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octalane {

/// Calls visit(block, index) for each of `count` blocks at `bytes`, which need no alignment.
template <class Block, class Visit>
void for_each_block(const std::byte* bytes, int64_t count, Visit visit) {
  for (int64_t b = 0; b < count; ++b) {
    Block block;
    std::memcpy(&block, bytes + b * static_cast<int64_t>(sizeof block), sizeof block);
    visit(block, b);
  }
}

/// Low nibbles of `count` bytes -> low[count], high nibbles -> high[count].
inline void split_nibbles(const uint8_t* bytes, int count, uint8_t* low, uint8_t* high) {
  for (int i = 0; i < count; ++i) {
    low[i] = bytes[i] & 15;
    high[i] = static_cast<uint8_t>(bytes[i] >> 4);
  }
}

/// The inverse of split_nibbles; bits above the low four of a code are left out.
inline void join_nibbles(const uint8_t* low, const uint8_t* high, int count, uint8_t* bytes) {
  for (int i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>((low[i] & 15) | high[i] << 4);
}

/// Writes encode(values of the block) for each block of `values` values; the bytes need no alignment.
template <class Block, class Encode>
void encode_each_block(const float* values, int64_t cols, int block_values, std::byte* out, Encode encode) {
  for (int64_t b = 0; b < cols / block_values; ++b) {
    const Block block = encode(values + b * block_values);
    std::memcpy(out + b * static_cast<int64_t>(sizeof block), &block, sizeof block);
  }
}

}  // namespace octalane
