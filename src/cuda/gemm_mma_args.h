// What a product kernel of mma.sync is launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

/// y[tokens, rows] = x W^T, one block a tile. Fields of GemmArgs' names are the same as there.
struct GemmMmaArgs {
  const uint8_t* x;  ///< [tokens][padded columns] of the lane's type, aligned to 16 bytes
  void* y;           ///< [tokens][y_stride] fp32 or bfloat16
  const uint8_t* records;
  const uint32_t* supers;
  const float* weight_scales;
  const float* token_scales;
  const float* token_sums;
  const uint16_t* token_minima;
  int64_t y_stride;  ///< elements
  int32_t y_is_f32;
  int32_t tokens, rows, padded_tokens, padded_rows;
  int32_t panels;
  int32_t words;         ///< of a row and record
  int32_t record_bytes;  ///< of one record
  int32_t bf16_scales;
  int32_t zero;
  uint32_t magic, selector, step;
  float offset;
  uint32_t minus_pivots;
  uint32_t table[4];
  uint64_t* clocks;
};

}  // namespace octalane::cuda
