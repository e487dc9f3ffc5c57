// Reads one row of a packed record, in any tile order, the way core/packed_view.h describes it.
#pragma once

#include <cstring>

#include "core/codebook.h"
#include "core/half.h"
#include "core/packed_view.h"
#include "kernels/kernel.h"

namespace octalane::scalar {

inline constexpr int kMaxRecordCols = 256;
inline constexpr int kMaxRecordGroups = kMaxRecordCols / 16;

/// One weight row of one record: levels (in `element` when they are floats, or whole float elements) and fp32 scales.
/// Codebooks have both: the fp32 sums of codewords, and the int8 levels of core/codebook.h.
struct RecordRow {
  int level[kMaxRecordCols];
  float element[kMaxRecordCols];
  float scale[kMaxRecordGroups];
  float bias[kMaxRecordGroups];
};

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline float read_scale(ScaleType type, const std::byte* plane, int64_t index) {
  switch (type) {
    case ScaleType::none: return 0.0f;
    case ScaleType::f16: return f16_to_f32(read<uint16_t>(plane + 2 * index));
    case ScaleType::bf16: return bf16_to_f32(read<uint16_t>(plane + 2 * index));
    case ScaleType::f32: return read<float>(plane + 4 * index);
    case ScaleType::e8m0: return e8m0_to_f32(read<uint8_t>(plane + index));
    case ScaleType::e8m0_half: return e8m0_half_to_f32(read<uint8_t>(plane + index));
  }
  return 0.0f;
}

/// The code of `col` (0..31) and `row` of a code block.
inline unsigned read_code(const std::byte* block, int bits, int rows, int row, int col) {
  const int quad = col / 4;
  unsigned code = 0;
  int low_bit = 0;
  for (const int width : code_planes(bits).width) {
    if (width == 0) break;
    const int vector = quad % width, field = quad / width;
    const auto byte = read<uint8_t>(block + (vector * rows + row) * 4 + col % 4);
    code |= (static_cast<unsigned>(byte) >> (field * width) & ((1u << width) - 1u)) << low_bit;
    low_bit += width;
    block += width * rows * 4;
  }
  return code;
}

inline float read_element(const std::byte* block, CodeMap map, int rows, int row, int col) {
  const int64_t index = int64_t{col} * rows + row;
  switch (map) {
    case CodeMap::f16: return f16_to_f32(read<uint16_t>(block + 2 * index));
    case CodeMap::bf16: return bf16_to_f32(read<uint16_t>(block + 2 * index));
    default: return read<float>(block + 4 * index);
  }
}

inline void read_scales(const PackedView& w, const std::byte* record, int row, RecordRow& out) {
  const ScaleSpec& s = w.spec.scale;
  for (int g = 0; g < w.record.groups; ++g) {
    const int64_t at = (s.nested() ? 0 : g * w.order.rows) + row;
    float scale = read_scale(s.type, record + w.record.scale, at);
    float bias = s.has_bias ? read_scale(s.type, record + w.record.bias, at) : 0.0f;
    if (s.nested()) {
      const int64_t sub = int64_t{g} * w.order.rows + row;
      scale *= static_cast<float>(read<int8_t>(record + w.record.sub_scale + sub));
      if (s.has_bias) bias = -(bias * static_cast<float>(read<int8_t>(record + w.record.sub_min + sub)));
    }
    out.scale[g] = scale;
    out.bias[g] = bias;
  }
}

/// Scale, bias and integer sub-scales of one row of one super-group.
struct SuperRow {
  float scale, bias;
  int sub_scale[kMaxRecordGroups];
  int sub_min[kMaxRecordGroups];
};

inline void read_super(const PackedView& w, int64_t tile, int64_t record_index, int row, SuperRow& out) {
  const std::byte* record = w.at(tile, record_index);
  const ScaleSpec& s = w.spec.scale;
  out.scale = read_scale(s.type, record + w.record.scale, row);
  out.bias = s.has_bias ? read_scale(s.type, record + w.record.bias, row) : 0.0f;
  for (int g = 0; g < w.record.groups; ++g) {
    const int64_t sub = int64_t{g} * w.order.rows + row;
    out.sub_scale[g] = read<int8_t>(record + w.record.sub_scale + sub);
    out.sub_min[g] = s.has_bias ? read<int8_t>(record + w.record.sub_min + sub) : 0;
  }
}

/// The levels of one row of a block of codebook codes; `out` begins at the block's first column.
inline void read_codebook_block(const PackedView& w, const std::byte* block, int row, int* level, float* element) {
  const int books = w.spec.code.books, vector = w.spec.code.vector;
  for (int c = 0; c < kBlockCols; ++c) {
    float sum = 0.0f;
    int fixed = 0;
    for (int b = 0; b < books; ++b) {
      const auto code = read<uint8_t>(block + (c / vector * w.order.rows + row) * books + b);
      const int at = (b * kCodewords + code) * vector + c % vector;
      sum += w.codebooks.values[at];
      fixed += w.codebooks.fixed[at];
    }
    element[c] = sum;
    level[c] = codebook_level(fixed);
  }
}

inline void read_record(const PackedView& w, int64_t tile, int64_t record_index, int row, RecordRow& out) {
  const std::byte* record = w.at(tile, record_index);
  const CodeSpec& code = w.spec.code;
  if (code.is_codebook()) {
    for (int b = 0; b < w.record.cols / kBlockCols; ++b) {
      read_codebook_block(w, record + b * w.record.block_bytes, row, out.level + b * kBlockCols,
                          out.element + b * kBlockCols);
    }
    return read_scales(w, record, row, out);
  }
  for (int c = 0; c < w.record.cols; ++c) {
    const std::byte* block = record + c / kBlockCols * w.record.block_bytes;
    if (code.is_float()) {
      out.element[c] = read_element(block, code.map, w.order.rows, row, c % kBlockCols);
      continue;
    }
    const unsigned bits = read_code(block, code.bits, w.order.rows, row, c % kBlockCols);
    if (code.map == CodeMap::e4m3) {
      out.element[c] = e4m3_to_f32(static_cast<uint8_t>(bits));
    } else {
      out.level[c] = code.level(bits);
    }
  }
  if (!code.is_float()) read_scales(w, record, row, out);
}

/// Calls visit(weight row n, its tile, its row in the tile) for the rows that args asks for.
template <class Visit>
void for_each_row(const MatmulArgs& args, Visit visit) {
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    for (int r = 0; r < args.w.order.rows; ++r) {
      const int64_t n = tile * args.w.order.rows + r;
      if (n < args.w.rows) visit(n, tile, r);
    }
  }
}

}  // namespace octalane::scalar
