// What the kernels for few tokens are launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kGemvRows = 128;  ///< of a block: two records, 16 rows a warp
inline constexpr int kGemvThreads = 256;
inline constexpr int kGemvSlices = 8;   ///< at most: blocks that share the columns of their rows
inline constexpr int kGemvTokens = 16;  ///< at most

/// y[tokens, rows] = x W^T. Kernels: gemv_<code>_<group>_<tokens>, code nibble, table or byte; group 16, 32 or 64 (all
/// larger ones); tokens 1, 4, 8 or 16, how many at most.
struct GemvArgs {
  const uint8_t* records;
  const uint32_t* supers;  ///< nested scales: [rows / 64][ceil(padded columns / 256)][64] pairs of f16
  const uint16_t* x;       ///< [tokens][gemv_cols] binary16 as stage_f16 leaves it for this code, aligned to 16 bytes
  const float* x_scales;   ///< [tokens]
  const float* x_sums;     ///< [tokens][gemv_cols / group]
  float* y;                ///< [tokens][y_stride]
  float* partials;         ///< null: the blocks of a cluster add up; else [slices][tokens][padded_rows], for gemv_sum
  int64_t y_stride;
  int32_t tokens, rows;
  int32_t padded_rows;  ///< a multiple of kPanelRows
  int32_t panels;       ///< padded columns / 128
  int32_t slices;       ///< gemv_slices
  int32_t scale_words;  ///< ScaleWords: an exact kind
  int32_t zero;         ///< of the codes; nibble and byte
  uint32_t table[4];    ///< levels + 128 of table codes
};

/// Slices begin at multiples of so many records: the columns of a super-group, and of what a warp multiplies at once.
inline constexpr int kGemvStep = 4;
constexpr int gemv_steps(int panels) { return (2 * panels + kGemvStep - 1) / kGemvStep; }
/// Columns of the tokens.
constexpr int gemv_cols(int panels) { return gemv_steps(panels) * kGemvStep * 64; }

/// Slices of the columns: as many as make about two blocks for each multiprocessor of a large device. The order of sums
/// depends on this and on the kernel, so not on how many tokens there are.
constexpr int gemv_slices(int panels, int row_blocks) {
  int slices = 1;
  while (slices < kGemvSlices && 2 * slices * row_blocks <= 320 && 2 * slices <= gemv_steps(panels)) slices *= 2;
  return slices;
}
/// The first record of a slice; that of the slice behind the last is the number of records.
constexpr int gemv_first_record(int panels, int slice, int slices) {
  const auto first = static_cast<int>(int64_t{gemv_steps(panels)} * slice / slices * kGemvStep);
  return first < 2 * panels ? first : 2 * panels;
}
/// Records that a slice has room for in shared memory.
constexpr int gemv_slice_records(int panels, int slices) {
  return (gemv_steps(panels) + slices - 1) / slices * kGemvStep;
}

/// Dynamic shared memory of a block: pairs of table levels, tokens, zeros in place of tokens that a column of an
/// instruction has nothing of, sums of tokens by group, partial outputs. Offsets in bytes.
struct GemvShared {
  int tokens = 0;
  int token_bytes = 0;  ///< from token to token; 64 past a multiple of 128, so that eight tokens meet all banks
  int zeros = 0;
  int sums = 0;
  int sum_bytes = 0;  ///< from token to token; 16 past a multiple of 128 or 64, likewise
  int partials = 0;
  int bytes = 0;
};

inline constexpr int kGemvPartialRow = kGemvRows + 4;  ///< floats from token to token, likewise
inline constexpr int kGemvTableBytes = 256 * 32 * 4;   ///< two levels by two codes, one copy a lane

constexpr GemvShared gemv_shared(int panels, int slices, int tokens, int kernel_tokens, int group, bool table) {
  const int records = gemv_slice_records(panels, slices);
  GemvShared shared;
  shared.tokens = table ? kGemvTableBytes : 0;
  shared.token_bytes = records * 128 + 64;
  shared.zeros = shared.tokens + shared.token_bytes * tokens;
  shared.sums = shared.zeros + kGemvStep * 128;
  shared.sum_bytes = records * (group >= 64 ? 1 : 64 / group) * 4 + 16;
  shared.partials = shared.sums + shared.sum_bytes * kernel_tokens;
  shared.bytes = shared.partials + kernel_tokens * kGemvPartialRow * 4;
  return shared;
}

/// Blocks are [padded rows / kGemvRows][slices], slices fastest: grid x = slices, y = the rest. Without `partials` the
/// slices are a cluster (sm_90). With them gemv_sum follows, on [ceil(rows / kGemvThreads)][tokens], tokens as grid y.
struct GemvLaunch {
  int slices = 0;      ///< grid x and cluster x
  int row_blocks = 0;  ///< grid y
  int shared_bytes = 0;
};

constexpr GemvLaunch gemv_launch(int tokens, int kernel_tokens, int padded_rows, int panels, int group, bool table) {
  GemvLaunch launch;
  launch.row_blocks = padded_rows / kGemvRows;
  launch.slices = gemv_slices(panels, launch.row_blocks);
  launch.shared_bytes = gemv_shared(panels, launch.slices, tokens, kernel_tokens, group, table).bytes;
  return launch;
}

}  // namespace octalane::cuda
