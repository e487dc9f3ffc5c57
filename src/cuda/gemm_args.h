// What a product kernel is launched with. Known to host and device code.
#pragma once

#include <cstdint>

namespace octalane::cuda {

/// The driver's CUtensorMap.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// What the table of a product over experts has for each tile of tokens. All entries of an expert are equal; there are
/// as many as its slots need.
struct alignas(16) ExpertTile {
  int32_t begin, end;  ///< the expert's slots; begin is a multiple of kSlotUnit
  int32_t first;       ///< the expert's first entry
  int32_t expert;
};
inline constexpr int kSlotUnit = 64;  ///< slots of an expert are padded to a multiple: an output's box has one expert

/// Where a tile lies.
struct ExpertPlace {
  int token, end;  ///< its first slot, and behind the expert's last
  int row;         ///< of the output
  int record_row;
};
/// Tile `number` of a product over experts, in tiles of `tokens` by `rows`; `entry` is the table's number / row_tiles.
/// An expert has row_tiles tiles for each of its entries, and tokens run fastest. The last rows may be met twice.
constexpr ExpertPlace expert_place(const ExpertTile& entry, int number, int tokens, int rows, int row_tiles,
                                   int expert_rows) {
  const int tile = number - entry.first * row_tiles, tiles = (entry.end - entry.begin + tokens - 1) / tokens;
  const int wanted = tile / tiles * rows, row = wanted < expert_rows - rows ? wanted : expert_rows - rows;
  return {entry.begin + tile % tiles * tokens, entry.end, row, entry.expert * expert_rows + row};
}

/// y[tokens, rows] = x W^T; over experts: slots in place of tokens. Token scales and sums are [group][padded tokens],
/// weight scales [unit][padded rows].
struct GemmArgs {
  TensorMap x;  ///< [tokens][padded columns] of the lane's type, boxes of 128 bytes by the kernel's tokens
  TensorMap y;  ///< [tokens][rows] bfloat16, boxes of 64 by 64; used when y_f32 is null
  const uint8_t* records;
  const uint32_t* supers;      ///< nested scales: [rows / 64][ceil(columns / 256)][64] pairs of f16
  const float* weight_scales;  ///< re-encoded lanes
  const float* token_scales;
  const float* token_sums;       ///< s8.group: sums of codes
  const uint16_t* token_minima;  ///< s8.nested: [blocks of 256][padded tokens][16], see minima_position
  float* y_f32;
  int64_t y_stride;             ///< of y_f32, elements
  const ExpertTile* experts;    ///< null: one matrix of weights; else a table for tiles of the kernel's tokens
  const int32_t* expert_tiles;  ///< how many entries it has
  int32_t tokens, rows, padded_tokens;
  int32_t padded_rows;  ///< of all experts
  int32_t expert_rows;  ///< of one; of the only matrix
  int32_t panels;       ///< padded columns / 128
  int32_t bf16_scales;  ///< single and pair words are bfloat16, not binary16
  int32_t promote;      ///< f8 lanes: panels from promotion to promotion
  int32_t zero;         ///< of the codes
  // 16-bit lanes: permute(quad, magic, selector + e * step) is, in fp32, 2^7 or 2^15 and code e, and offset the negated
  // value of a level of 0 among them.
  uint32_t magic, selector, step;
  float offset;
  uint32_t minus_pivots;    ///< staged words: -65537 times the pivot code
  uint32_t table[4];        ///< levels + 128 of table codes; f8.group: as E4M3
  const uint64_t* shifted;  ///< f8.row: [kShifts] magnitudes of eight levels, a byte each
  uint64_t* clocks;         ///< null, or where block 0 writes clocks and nanoseconds
};

}  // namespace octalane::cuda
