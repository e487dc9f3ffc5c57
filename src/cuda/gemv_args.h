// What the kernels for few tokens are launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kGemvRows = 128;  ///< of a block: two records, 16 rows a warp
inline constexpr int kGemvThreads = 256;
inline constexpr int kGemvTokens = 16;  ///< at most
inline constexpr int kGemvSlices = 4;   ///< at most: blocks that share the columns of their rows

/// y[tokens, rows] = x W^T. Kernels: gemv_<code>_<group>_<tokens>, code nibble, table or byte; group 16, 32 or 64 (all
/// larger ones); tokens 8 or 16, how many at most.
struct GemvArgs {
  const uint8_t* records;
  const uint32_t* supers;  ///< nested scales: [rows / 64][ceil(padded columns / 256)][64] pairs of f16
  const uint16_t* x;       ///< [tokens][x_stride] bfloat16 as stage_bf16 leaves it, aligned to 16 bytes
  float* y;                ///< [tokens][y_stride]
  float* partials;         ///< null: the blocks of a cluster add up; else [slices][tokens][padded_rows], for gemv_sum
  int64_t x_stride;        ///< padded columns
  int64_t y_stride;
  int32_t tokens, rows;
  int32_t padded_rows;  ///< a multiple of kPanelRows
  int32_t panels;       ///< padded columns / 128
  int32_t slices;       ///< gemv_slices
  int32_t record_bytes;
  int32_t scale_words;  ///< ScaleWords: an exact kind
  int32_t zero;         ///< of the codes, -127 to 128; nibble and byte
  uint32_t table[4];    ///< levels + 128 of table codes
};

/// Slices of the columns: as many as make about two blocks for each multiprocessor of a large device. The order of sums
/// depends on this alone, so on the shape of the weights alone.
constexpr int gemv_slices(int panels, int row_blocks) {
  int slices = 1;
  while (slices < kGemvSlices && 2 * slices * row_blocks <= 320 && 2 * slices <= panels) slices *= 2;
  return slices;
}
/// The first record of a slice; that of the slice behind the last is the number of records.
constexpr int gemv_first_record(int panels, int slice, int slices) {
  return static_cast<int>(int64_t{2} * panels * slice / slices);
}

/// Dynamic shared memory of a block: pairs of table levels, tokens, their sums, partial outputs. Offsets in bytes.
struct GemvShared {
  int tokens = 0;
  int token_bytes = 0;  ///< from token to token; 64 past a multiple of 128, so that eight tokens meet all banks
  int sums = 0;
  int partials = 0;
  int bytes = 0;
};

inline constexpr int kGemvPartialRow = kGemvRows + 4;  ///< floats from token to token, likewise
inline constexpr int kGemvTableBytes = 256 * 32 * 4;   ///< two levels by two codes, one copy a lane

/// Of up to eight tokens only those that there are take a place; else all of the kernel's.
constexpr GemvShared gemv_shared(int panels, int slices, int tokens, int kernel_tokens, int group, bool table) {
  const int records = (2 * panels + slices - 1) / slices;
  GemvShared shared;
  shared.tokens = table ? kGemvTableBytes : 0;
  shared.token_bytes = records * 128 + 64;
  shared.sums = shared.tokens + shared.token_bytes * (tokens <= 8 ? tokens : kernel_tokens);
  shared.partials = shared.sums + records * (group >= 64 ? 1 : 64 / group) * kernel_tokens * 4;
  shared.bytes = shared.partials + kernel_tokens * kGemvPartialRow * 4;
  return shared;
}

/// Blocks are [padded rows / kGemvRows][slices], slices fastest: grid x = slices, y = the rest. Without `partials` the
/// slices are a cluster (sm_90). With them gemv_sum follows, on [ceil(rows / kGemvThreads)][tokens], tokens as grid y.
struct GemvLaunch {
  int kernel_tokens = 0;  ///< in the kernel's name
  int slices = 0;         ///< grid x and cluster x
  int row_blocks = 0;     ///< grid y
  int shared_bytes = 0;
  int64_t partial_floats = 0;
};

constexpr GemvLaunch gemv_launch(int tokens, int padded_rows, int panels, int group, bool table) {
  GemvLaunch launch;
  launch.kernel_tokens = tokens <= 8 ? 8 : 16;
  launch.row_blocks = padded_rows / kGemvRows;
  launch.slices = gemv_slices(panels, launch.row_blocks);
  launch.shared_bytes = gemv_shared(panels, launch.slices, tokens, launch.kernel_tokens, group, table).bytes;
  launch.partial_floats = int64_t{launch.slices} * tokens * padded_rows;
  return launch;
}

}  // namespace octalane::cuda
