// Packed weights: planes in a tile order that kernels stream through, one record after another.
//
// A tile holds `order.rows` consecutive weight rows; a record holds the tile's codes and scales for `record.cols`
// consecutive columns. Records of a tile follow each other along K, tiles follow each other along N, so a kernel
// reads one stream. Rows past N are codes 0 with scales 0; columns past K are zero bytes.
//
// Codes are cut into planes of 1, 2, 4 and 8 bits (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1; low bits first). Within 32 columns
// a plane of width w is w vectors of order.rows * 4 bytes; vector v, bit field f (of w bits, from the low end) holds
// the column quad q = f * w + v, and its byte 4 * row + j belongs to column 4 * q + j of those 32. So one shift and one
// mask per quad yield [row][4] bytes: the operand order of AVX2 maddubs, VNNI and AMX alike.
// Float elements lie as [column][row] of their own width. Codes of codebooks: [vector of columns][row][book], in blocks
// of 32 columns like all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/code_spec.h"
#include "core/inline.h"

namespace octalane {

inline constexpr int kBlockCols = 32;  ///< columns of one code block

struct TileOrder {
  int rows = 16;
  friend constexpr bool operator==(const TileOrder&, const TileOrder&) = default;
};

/// Byte offsets inside one record. Scales, biases and sub-scales lie as [group][row]; nested scale and bias as [row].
struct RecordLayout {
  int cols = 0;         ///< K extent: max(32, group), or super when nested
  int block_bytes = 0;  ///< codes (or elements) of 32 columns; blocks lie first, cols / 32 of them
  int groups = 0;       ///< scale groups in one record
  int scale = 0, bias = 0, sub_scale = 0, sub_min = 0;
  int bytes = 0;
};

/// Widths of the code planes of a code of `bits`, low bits first; 0 = no further plane.
struct CodePlanes {
  int width[2];
};
constexpr CodePlanes code_planes(int bits) {
  switch (bits) {
    case 3: return {{2, 1}};
    case 5: return {{4, 1}};
    case 6: return {{4, 2}};
    default: return {{bits, 0}};
  }
}

constexpr RecordLayout record_layout(const WeightSpec& spec, TileOrder order) {
  RecordLayout r;
  const ScaleSpec& s = spec.scale;
  if (spec.code.is_float()) {
    r.cols = kBlockCols;
    r.block_bytes = kBlockCols * order.rows * spec.code.bits / 8;
    r.bytes = r.block_bytes;
    return r;
  }
  r.cols = s.nested() ? s.super : (s.group > kBlockCols ? s.group : kBlockCols);
  r.block_bytes = static_cast<int>(spec.code.code_bytes(kBlockCols)) * order.rows;
  r.groups = r.cols / s.group;
  const int scales = (s.nested() ? 1 : r.groups) * order.rows * bytes_of(s.type);
  const int subs = s.nested() ? r.groups * order.rows : 0;
  r.scale = r.cols / kBlockCols * r.block_bytes;
  r.bias = r.scale + scales;
  r.sub_scale = r.bias + (s.has_bias ? scales : 0);
  r.sub_min = r.sub_scale + subs;
  r.bytes = r.sub_min + (s.has_bias ? subs : 0);
  return r;
}

/// Codebooks of a matrix: as they are, and as the int8 lane has them.
struct CodebooksView {
  const float* values = nullptr;  ///< [books][kCodewords][vector]
  /// The same as fixed[] = the low 16 bits of rne(value * 128 / unit), so that an int8 level is
  /// (sum of fixed + 64) >> 7, in 16-bit arithmetic that wraps; unit = largest |sum of codewords| / 127.
  const int16_t* fixed = nullptr;
  float unit = 0;
};

/// What a kernel sees of packed weights. A different type from anything plain: it cannot be mistaken.
struct PackedView {
  WeightSpec spec;
  TileOrder order;
  RecordLayout record;
  int64_t rows = 0;     ///< N
  int64_t cols = 0;     ///< K
  int64_t tiles = 0;    ///< ceil(N / order.rows)
  int64_t records = 0;  ///< ceil(K / record.cols), per tile
  const std::byte* data = nullptr;
  CodebooksView codebooks;  ///< of a spec that has them

  OCTALANE_INLINE const std::byte* at(int64_t tile, int64_t r) const {
    return data + (tile * records + r) * record.bytes;
  }
  /// The codebooks' values; none for other specs.
  std::span<const float> codebook_values() const { return {codebooks.values, spec.code.codebook_values()}; }
  /// K rounded up to whole records: the width that activations are padded to, with zeros.
  OCTALANE_INLINE int64_t padded_cols() const { return records * record.cols; }
};

}  // namespace octalane
