// What the kernels for few tokens are launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kGemvGroupRows = 16;    ///< rows of a warp at a time
inline constexpr int kGemvSlices = 8;        ///< at most: blocks that share the columns of their rows
inline constexpr int kGemvGroups = 8;        ///< of a block, at most
inline constexpr int kGemvSumThreads = 256;  ///< of gemv_sum

inline constexpr int kGemvThreads = 512;  ///< a block for each multiprocessor

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
  int32_t groups;       ///< of 16 rows
  int32_t scale_words;  ///< ScaleWords: an exact kind
  int32_t zero;         ///< of the codes; nibble and byte
  uint32_t table[4];    ///< levels + 128 of table codes
};

/// Groups of 16 rows.
constexpr int gemv_groups(int rows) { return (rows + kGemvGroupRows - 1) / kGemvGroupRows; }

/// Slices begin at multiples of so many records: the columns of a super-group, and of what a warp multiplies at once.
inline constexpr int kGemvStep = 4;
constexpr int gemv_steps(int panels) { return (2 * panels + kGemvStep - 1) / kGemvStep; }
/// Columns of the tokens.
constexpr int gemv_cols(int panels) { return gemv_steps(panels) * kGemvStep * 64; }

/// Who shares the columns of some rows: blocks, and warps of each. The order of sums depends on this and on the kernel,
/// so not on how many tokens there are.
struct GemvSplit {
  int slices = 1, warps = 1;
};

/// Slices as few as leave room for the tokens in a multiprocessor's shared memory, or, of few rows, as many as make a
/// block for each multiprocessor of a large device.
constexpr GemvSplit gemv_split(int panels, int groups, int kernel_tokens) {
  const int steps = gemv_steps(panels), most_steps = 256 / kernel_tokens;  // of 512 bytes a token
  GemvSplit split;
  while (2 * split.slices <= kGemvSlices && 2 * split.slices <= steps &&
         (steps > most_steps * split.slices || 2 * split.slices * groups <= 132))
    split.slices *= 2;
  while (2 * split.warps <= (kernel_tokens <= 4 ? 8 : 2) && 2 * split.warps * split.slices <= steps) split.warps *= 2;
  return split;
}
/// Clusters of slices, each with the groups of rows from the first one on: as many as the device runs at once, or more
/// where they would have too many groups.
constexpr int gemv_clusters(int groups, const GemvSplit& split, int multiprocessors) {
  const int all = multiprocessors / split.slices, least = (groups + kGemvGroups - 1) / kGemvGroups;
  const int clusters = all < least ? least : all;
  return clusters < groups ? clusters : groups;
}
constexpr int gemv_first_group(int groups, int cluster, int clusters) {
  return static_cast<int>(int64_t{groups} * cluster / clusters);
}
/// The first step of part `part` of `parts`; that of the part behind the last is the number of steps.
constexpr int gemv_first_step(int panels, int part, int parts) {
  return static_cast<int>(int64_t{gemv_steps(panels)} * part / parts);
}
/// Records that a block has room for in shared memory.
constexpr int gemv_block_records(int panels, int slices) {
  return (gemv_steps(panels) + slices - 1) / slices * kGemvStep;
}

/// Dynamic shared memory of a block: a barrier, tokens, zeros in place of tokens that a column of an instruction has
/// nothing of, sums of tokens by group, partial outputs [group][warp][token][16 rows]. Offsets in bytes.
struct GemvShared {
  int tokens = 0;
  int token_bytes = 0;  ///< from token to token; 64 past a multiple of 128, so that eight tokens meet all banks
  int zeros = 0;
  int sums = 0;
  int sum_bytes = 0;  ///< from token to token; 16 past a multiple of 128 or 64, likewise
  int partials = 0;
  int bytes = 0;
};

/// `group`: 16, 32 or 64 columns.
constexpr GemvShared gemv_shared(int panels, const GemvSplit& split, int groups, int tokens, int group) {
  const int records = gemv_block_records(panels, split.slices);
  GemvShared shared;
  shared.tokens = 16;
  shared.token_bytes = records * 128 + 64;
  shared.zeros = shared.tokens + shared.token_bytes * tokens;
  shared.sums = shared.zeros + kGemvStep * 128;
  shared.sum_bytes = records * 64 / group * 4 + 16;
  shared.partials = shared.sums + shared.sum_bytes * tokens;
  shared.bytes = shared.partials + groups * split.warps * tokens * kGemvGroupRows * 4;
  return shared;
}

/// Blocks are [clusters][slices], slices fastest: grid x = slices, y = the rest. Without `partials` the slices are a
/// cluster (sm_90). With them, and more slices than one, gemv_sum follows, on [ceil(rows / kGemvSumThreads)][tokens],
/// tokens as grid y.
struct GemvLaunch {
  GemvSplit split;   ///< slices: grid x and cluster x
  int clusters = 0;  ///< grid y
  int shared_bytes = 0;
};

constexpr GemvLaunch gemv_launch(int tokens, int kernel_tokens, int rows, int panels, int multiprocessors, int group) {
  const int groups = gemv_groups(rows);
  GemvLaunch launch;
  launch.split = gemv_split(panels, groups, kernel_tokens);
  launch.clusters = gemv_clusters(groups, launch.split, multiprocessors);
  const int of_block = (groups + launch.clusters - 1) / launch.clusters;
  launch.shared_bytes = gemv_shared(panels, launch.split, of_block, tokens, group).bytes;
  return launch;
}

}  // namespace octalane::cuda
