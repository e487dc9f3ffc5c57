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

/// Slices of the columns: as many as make about one block (few tokens) or two for each multiprocessor of a large
/// device. One leaves room for a block of the kernel behind, whose weights then come while this one's are multiplied.
/// The order of sums depends on this and on the kernel, so not on how many tokens there are.
constexpr int gemv_slices(int panels, int row_blocks, int kernel_tokens) {
  const int blocks = kernel_tokens <= 4 ? 160 : 320;
  int slices = 1;
  while (slices < kGemvSlices && 2 * slices * row_blocks <= blocks && 2 * slices <= gemv_steps(panels)) slices *= 2;
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

/// What shared memory depends on besides the tokens.
struct GemvFormat {
  int bits;   ///< of a code: 4 or 8
  int group;  ///< 16, 32 or 64
  int word_bytes;
  bool table;
};

/// Units of a warp, kGemvStep records by 16 rows: bytes of one, and how many are on their way at once.
constexpr int gemv_unit_bytes(const GemvFormat& format) {
  return kGemvStep * 16 * (8 * format.bits + 64 / format.group * format.word_bytes) + 64;
}
constexpr int gemv_units(int bits, bool table, int kernel_tokens) {
  return bits == 8 || kernel_tokens > 8 ? 2 : table ? 3 : 4;
}

/// Dynamic shared memory of a block: a barrier, pairs of table levels, units of weights on their way (partial outputs
/// in their place at the end), tokens, zeros in place of tokens that a column of an instruction has nothing of, sums of
/// tokens by group. Offsets in bytes.
struct GemvShared {
  int table = 0;
  int units = 0;  ///< [warps][gemv_units]
  int tokens = 0;
  int token_bytes = 0;  ///< from token to token; 64 past a multiple of 128, so that eight tokens meet all banks
  int zeros = 0;
  int sums = 0;
  int sum_bytes = 0;  ///< from token to token; 16 past a multiple of 128 or 64, likewise
  int bytes = 0;
};

inline constexpr int kGemvPartialRow = kGemvRows + 4;  ///< floats from token to token, likewise
inline constexpr int kGemvTableBytes = 256 * 32 * 4;   ///< two levels by two codes, one copy a lane

constexpr GemvShared gemv_shared(int panels, int slices, int tokens, int kernel_tokens, const GemvFormat& format) {
  const int records = gemv_slice_records(panels, slices);
  const int units = kGemvThreads / 32 * gemv_units(format.bits, format.table, kernel_tokens) * gemv_unit_bytes(format);
  const int partials = kernel_tokens * kGemvPartialRow * 4;
  GemvShared shared;
  shared.table = 16;
  shared.units = shared.table + (format.table ? kGemvTableBytes : 0);
  shared.tokens = shared.units + (units < partials ? partials : units);
  shared.token_bytes = records * 128 + 64;
  shared.zeros = shared.tokens + shared.token_bytes * tokens;
  shared.sums = shared.zeros + kGemvStep * 128;
  shared.sum_bytes = records * 64 / format.group * 4 + 16;
  shared.bytes = shared.sums + shared.sum_bytes * tokens;
  return shared;
}

/// Blocks are [padded rows / kGemvRows][slices], slices fastest: grid x = slices, y = the rest. Without `partials` the
/// slices are a cluster (sm_90). With them gemv_sum follows, on [ceil(rows / kGemvThreads)][tokens], tokens as grid y.
struct GemvLaunch {
  int slices = 0;      ///< grid x and cluster x
  int row_blocks = 0;  ///< grid y
  int shared_bytes = 0;
};

constexpr GemvLaunch gemv_launch(int tokens, int kernel_tokens, int padded_rows, int panels, const GemvFormat& format) {
  GemvLaunch launch;
  launch.row_blocks = padded_rows / kGemvRows;
  launch.slices = gemv_slices(panels, launch.row_blocks, kernel_tokens);
  launch.shared_bytes = gemv_shared(panels, launch.slices, tokens, kernel_tokens, format).bytes;
  return launch;
}

}  // namespace octalane::cuda
