// What the kernels that stage activations are launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kActivationUnit = 8;   ///< neighbouring columns of a thread
inline constexpr int kActivationUnits = 4;  ///< units that a thread keeps in registers at most

/// One block per token, `padded_tokens` blocks of activation_threads() threads; no dynamic shared memory.
/// Kernels: stage_bf16_*, stage_f16_*, stage_s8_*, stage_e4m3_*, where * says what x is: f32 or bf16.
struct ActivationArgs {
  const void* x;     ///< [tokens][cols]; read 16 bytes at a time where a row's address allows it
  int64_t x_stride;  ///< elements from row to row
  void* staged;      ///< [tokens][padded_cols] of the element, aligned to 16 bytes; zeros past `cols`
  float* scales;     ///< [ceil(padded_cols / group)][padded_tokens], 0 past `tokens`; s8 and e4m3. f16: [tokens]
  float* sums;       ///< s8: [padded_cols / sum_group][padded_tokens], 0 past `tokens`; null: none. f16: fp32 sums
                     ///< [tokens][padded_cols / sum_group], times kF16CodeScale
  uint16_t* minima;  ///< s8: sums of 32 codes, [ceil(padded_cols / 256)][padded_tokens][16] bfloat16 by
                     ///< minima_position, 0 past `tokens`; null: none. Not beside `sums`
  int32_t tokens, cols;
  int32_t padded_tokens;
  int32_t padded_cols;  ///< `cols` rounded up to kPanelCols; f16: to kSuperCols
  int32_t group;        ///< s8: columns of a scale, 32, 64, 128 or 256; 0: the row. Else unused
  int32_t sum_group;    ///< 8, 16, 32, 64 or 128
  int32_t code;         ///< f16: a Code
  /// Null: token by token. Else [tokens]: the row of x that a token is, less than 0 for one of zeros.
  const int32_t* source;
  int32_t in_place;  ///< with `source`: the token's own row, unless that says zeros
};

/// Threads of a block: two units each, as long as a block may have that many. Rows of up to 32768 columns are read from
/// memory once.
constexpr int activation_threads(int padded_cols) {
  const int threads = (padded_cols / (2 * kActivationUnit) + 31) / 32 * 32;
  return threads < 64 ? 64 : threads > 1024 ? 1024 : threads;
}

}  // namespace octalane::cuda
