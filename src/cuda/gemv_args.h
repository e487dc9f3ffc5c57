// What the kernels for few tokens are launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kGemvWarpRows = 16;
inline constexpr int kGemvSlices = 8;        ///< at most: blocks that share the columns of their rows
inline constexpr int kGemvTokens = 16;       ///< at most
inline constexpr int kGemvSumThreads = 256;  ///< of gemv_sum

/// Rows of a block. Every block reads its tokens for itself: the more there are, the more rows share them. Of one token
/// blocks are small, so that all multiprocessors get the same share.
constexpr int gemv_rows(int kernel_tokens) {
  return kGemvWarpRows * (kernel_tokens == 1 ? 1 : kernel_tokens == 4 ? 4 : 8);
}
/// Warps that share a block's columns, at most; and threads of a block, at most.
constexpr int gemv_most_warps(int kernel_tokens) { return kernel_tokens == 1 ? 8 : 2; }
constexpr int gemv_most_threads(int kernel_tokens) {
  return gemv_rows(kernel_tokens) / kGemvWarpRows * gemv_most_warps(kernel_tokens) * 32;
}

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
  int32_t slices;       ///< of gemv_split
  int32_t warps;        ///< likewise
  int32_t scale_words;  ///< ScaleWords: an exact kind
  int32_t zero;         ///< of the codes; nibble and byte
  uint32_t table[4];    ///< levels + 128 of table codes
};

/// Slices begin at multiples of so many records: the columns of a super-group, and of what a warp multiplies at once.
inline constexpr int kGemvStep = 4;
constexpr int gemv_steps(int panels) { return (2 * panels + kGemvStep - 1) / kGemvStep; }
/// Columns of the tokens.
constexpr int gemv_cols(int panels) { return gemv_steps(panels) * kGemvStep * 64; }

/// Who shares the columns of a block's rows: blocks, and warps of each. The order of sums depends on this and on the
/// kernel, so not on how many tokens there are.
struct GemvSplit {
  int slices = 1, warps = 1;
};

/// As many as give each multiprocessor of a large device 16 warps, or, where warps of a block are not enough, a block
/// or two.
constexpr GemvSplit gemv_split(int panels, int padded_rows, int kernel_tokens) {
  const int blocks = padded_rows / gemv_rows(kernel_tokens), steps = gemv_steps(panels);
  const int row_warps = padded_rows / kGemvWarpRows, most_blocks = kernel_tokens == 4 ? 320 : 160;
  GemvSplit split;
  while (2 * split.warps <= gemv_most_warps(kernel_tokens) && 2 * split.warps * row_warps <= 2200 &&
         2 * split.warps <= steps)
    split.warps *= 2;
  if (kernel_tokens == 1) return split;
  while (2 * split.slices <= kGemvSlices && 2 * split.slices * blocks <= most_blocks &&
         2 * split.slices * split.warps <= steps)
    split.slices *= 2;
  return split;
}
/// The first step of part `part` of `parts`; that of the part behind the last is the number of steps.
constexpr int gemv_first_step(int panels, int part, int parts) {
  return static_cast<int>(int64_t{gemv_steps(panels)} * part / parts);
}
/// Records that a block has room for in shared memory.
constexpr int gemv_block_records(int panels, int slices) {
  return (gemv_steps(panels) + slices - 1) / slices * kGemvStep;
}

/// What shared memory depends on besides the tokens.
struct GemvFormat {
  int bits;   ///< of a code: 4 or 8
  int group;  ///< 16, 32 or 64
  int word_bytes;
};

/// Units of a warp, kGemvStep records by 16 rows: bytes of one, and how many are on their way at once.
constexpr int gemv_unit_bytes(const GemvFormat& format) {
  return kGemvStep * kGemvWarpRows * (8 * format.bits + 64 / format.group * format.word_bytes) + 64;
}
constexpr int gemv_units(int bits, int kernel_tokens) {
  return kernel_tokens <= 4 ? 16 / bits : kernel_tokens == 8 || bits == 4 ? 2 : 1;
}

/// Dynamic shared memory of a block: a barrier, units of weights on their way (partial outputs in their place at the
/// end), tokens, zeros in place of tokens that a column of an instruction has nothing of, sums of tokens by group.
/// Offsets in bytes.
struct GemvShared {
  int units = 0;  ///< [warps][gemv_units]
  int tokens = 0;
  int token_bytes = 0;  ///< from token to token; 64 past a multiple of 128, so that eight tokens meet all banks
  int zeros = 0;
  int sums = 0;
  int sum_bytes = 0;  ///< from token to token; 16 past a multiple of 128 or 64, likewise
  int bytes = 0;
};

/// Floats of a block's partial outputs from token to token, likewise.
constexpr int gemv_partial_row(int kernel_tokens) { return gemv_rows(kernel_tokens) + 4; }

constexpr GemvShared gemv_shared(int panels, const GemvSplit& split, int tokens, int kernel_tokens,
                                 const GemvFormat& format) {
  const int records = gemv_block_records(panels, split.slices);
  const int warps = gemv_rows(kernel_tokens) / kGemvWarpRows * split.warps;
  const int units = warps * gemv_units(format.bits, kernel_tokens) * gemv_unit_bytes(format);
  const int partials = split.warps * kernel_tokens * gemv_partial_row(kernel_tokens) * 4;
  GemvShared shared;
  shared.units = 16;
  shared.tokens = shared.units + (units < partials ? partials : units);
  shared.token_bytes = records * 128 + 64;
  shared.zeros = shared.tokens + shared.token_bytes * tokens;
  shared.sums = shared.zeros + kGemvStep * 128;
  shared.sum_bytes = records * 64 / format.group * 4 + 16;
  shared.bytes = shared.sums + shared.sum_bytes * tokens;
  return shared;
}

/// Blocks are [padded rows / gemv_rows][slices], slices fastest: grid x = slices, y = the rest. Without `partials` the
/// slices are a cluster (sm_90). With them, and more slices than one, gemv_sum follows, on
/// [ceil(rows / kGemvSumThreads)][tokens], tokens as grid y.
struct GemvLaunch {
  GemvSplit split;     ///< slices: grid x and cluster x
  int row_blocks = 0;  ///< grid y
  int threads = 0;
  int shared_bytes = 0;
};

constexpr GemvLaunch gemv_launch(int tokens, int kernel_tokens, int padded_rows, int panels, const GemvFormat& format) {
  GemvLaunch launch;
  launch.split = gemv_split(panels, padded_rows, kernel_tokens);
  launch.row_blocks = padded_rows / gemv_rows(kernel_tokens);
  launch.threads = gemv_rows(kernel_tokens) / kGemvWarpRows * launch.split.warps * 32;
  launch.shared_bytes = gemv_shared(panels, launch.split, tokens, kernel_tokens, format).bytes;
  return launch;
}

}  // namespace octalane::cuda
