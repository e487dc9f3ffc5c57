#include "weights/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/codebook.h"
#include "core/half.h"
#include "core/parallel.h"

namespace octalane {
namespace {

constexpr uint32_t kEveryByte = 0x01010101u;

uint32_t load_u32(const void* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void store_u32(void* to, uint32_t word) { std::memcpy(to, &word, sizeof word); }

uint8_t to_e8m0(float scale, int bias) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  if ((bits >> 23) == 0) return static_cast<uint8_t>(bits == 0x00200000u ? 0 : bias - 127);  // 2^-128, 2^-127
  if ((bits >> 23) == 255) return 255;
  return static_cast<uint8_t>((bits >> 23) + static_cast<uint32_t>(bias - 127));
}

/// Back to the width the scale was read from: exact, since it came from there.
void store_scale(ScaleType type, float scale, std::byte* to) {
  const auto put = [to](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (type) {
    case ScaleType::none: return;
    case ScaleType::f16: return put(f32_to_f16(scale));
    case ScaleType::bf16: return put(f32_to_bf16(scale));
    case ScaleType::f32: return put(scale);
    case ScaleType::e8m0: return put(to_e8m0(scale, 127));
    case ScaleType::e8m0_half: return put(to_e8m0(scale, 128));
  }
}

float load_scale(ScaleType type, const std::byte* from) {
  uint16_t half = 0;
  if (bytes_of(type) == 2) std::memcpy(&half, from, sizeof half);
  switch (type) {
    case ScaleType::none: return 0;
    case ScaleType::f16: return f16_to_f32(half);
    case ScaleType::bf16: return bf16_to_f32(half);
    case ScaleType::f32: return std::bit_cast<float>(load_u32(from));
    case ScaleType::e8m0: return e8m0_to_f32(static_cast<uint8_t>(*from));
    case ScaleType::e8m0_half: return e8m0_half_to_f32(static_cast<uint8_t>(*from));
  }
  return 0;
}

/// Calls visit(word of four bytes in the block, its quad of columns, left shift of the codes' low bit, mask, field
/// shift) for every piece of every plane of one row of one code block.
template <class Visit>
void for_each_piece(int bits, int rows, int row, Visit visit) {
  int word = row;  // in units of four bytes
  int low_bit = 0;
  for (const int width : code_planes(bits).width) {
    if (width == 0) break;
    const uint32_t mask = ((1u << width) - 1u) * kEveryByte;
    for (int v = 0; v < width; ++v, word += rows) {
      for (int f = 0; f < 8 / width; ++f) visit(word, f * width + v, low_bit, mask, f * width);
    }
    low_bit += width;
  }
}

void pack_codes(int bits, int rows, int row, const uint8_t* codes, std::byte* block) {
  for_each_piece(bits, rows, row, [&](int word, int quad, int low_bit, uint32_t mask, int shift) {
    const uint32_t piece = (load_u32(codes + 4 * quad) >> low_bit & mask) << shift;
    store_u32(block + 4 * word, load_u32(block + 4 * word) | piece);
  });
}

void unpack_codes(int bits, int rows, int row, const std::byte* block, uint8_t* codes) {
  std::memset(codes, 0, kBlockCols);
  for_each_piece(bits, rows, row, [&](int word, int quad, int low_bit, uint32_t mask, int shift) {
    const uint32_t piece = (load_u32(block + 4 * word) >> shift & mask) << low_bit;
    store_u32(codes + 4 * quad, load_u32(codes + 4 * quad) | piece);
  });
}

/// Calls visit(offset in the record, index in the plane of the row) for the scales, or sub-scales, of one record.
template <class Visit>
void for_each_scale(const PackedView& view, int64_t record, int per_record, int row, int element_bytes, Visit visit) {
  const int64_t group_cols = view.record.cols / per_record;
  for (int g = 0; g < per_record; ++g) {
    const int64_t index = record * per_record + g;
    if (index * group_cols >= view.cols) break;
    visit((g * view.order.rows + row) * element_bytes, index);
  }
}

/// Moves one row of one tile between planes and records, in the direction of `Mover`.
template <class Mover>
void move_row(const PackedView& view, std::byte* tile, int row, const PlaneRow& planes, Mover mover) {
  const WeightSpec& spec = view.spec;
  const RecordLayout& layout = view.record;
  for (int64_t r = 0; r < view.records; ++r) {
    std::byte* record = tile + r * layout.bytes;
    for (int b = 0; b < layout.cols / kBlockCols; ++b) {
      const int64_t column = r * layout.cols + b * kBlockCols;
      const auto count = static_cast<int>(std::min<int64_t>(kBlockCols, view.cols - column));
      if (count > 0) mover.block(view, record + b * layout.block_bytes, row, planes, column, count);
    }
    if (spec.code.is_float()) continue;
    const int scales = spec.scale.nested() ? 1 : layout.groups;
    const int width = bytes_of(spec.scale.type);
    for_each_scale(view, r, scales, row, width, [&](int at, int64_t index) {
      mover.scale(spec.scale.type, record + layout.scale + at, planes.scale[index]);
      if (spec.scale.has_bias) mover.scale(spec.scale.type, record + layout.bias + at, planes.bias[index]);
    });
    if (!spec.scale.nested()) continue;
    for_each_scale(view, r, layout.groups, row, 1, [&](int at, int64_t index) {
      mover.byte(record[layout.sub_scale + at], planes.sub_scale[index]);
      if (spec.scale.has_bias) mover.byte(record[layout.sub_min + at], planes.sub_min[index]);
    });
  }
}

/// Codes of codebooks: visit(byte offset in the block, index in the row's plane) for `count` columns from `column` on.
template <class Visit>
void for_each_code(const PackedView& view, int64_t column, int count, int row, Visit visit) {
  const int books = view.spec.code.books, vector = view.spec.code.vector;
  for (int j = 0; j < count / vector; ++j) {
    for (int b = 0; b < books; ++b) {
      visit((j * view.order.rows + row) * books + b, (column / vector + j) * books + b);
    }
  }
}

struct Packer {
  static void block(const PackedView& view, std::byte* block, int row, const PlaneRow& from, int64_t column,
                    int count) {
    const int rows = view.order.rows;
    if (view.spec.code.is_float()) {
      const int width = view.spec.code.bits / 8;
      for (int c = 0; c < count; ++c) {
        std::memcpy(block + (c * rows + row) * width, from.elements + (column + c) * width, static_cast<size_t>(width));
      }
      return;
    }
    if (view.spec.code.is_codebook()) {
      return for_each_code(view, column, count, row,
                           [&](int64_t at, int64_t index) { block[at] = static_cast<std::byte>(from.codes[index]); });
    }
    uint8_t codes[kBlockCols] = {};
    std::memcpy(codes, from.codes + column, static_cast<size_t>(count));
    pack_codes(view.spec.code.bits, rows, row, codes, block);
  }
  static void scale(ScaleType type, std::byte* to, float from) { store_scale(type, from, to); }
  static void byte(std::byte& to, int8_t from) { to = static_cast<std::byte>(from); }
};

struct Unpacker {
  static void block(const PackedView& view, std::byte* block, int row, const PlaneRow& to, int64_t column, int count) {
    const int rows = view.order.rows;
    if (view.spec.code.is_float()) {
      const int width = view.spec.code.bits / 8;
      for (int c = 0; c < count; ++c) {
        std::memcpy(to.elements + (column + c) * width, block + (c * rows + row) * width, static_cast<size_t>(width));
      }
      return;
    }
    if (view.spec.code.is_codebook()) {
      return for_each_code(view, column, count, row,
                           [&](int64_t at, int64_t index) { to.codes[index] = static_cast<uint8_t>(block[at]); });
    }
    uint8_t codes[kBlockCols];
    unpack_codes(view.spec.code.bits, rows, row, block, codes);
    std::memcpy(to.codes + column, codes, static_cast<size_t>(count));
  }
  static void scale(ScaleType type, const std::byte* from, float& to) { to = load_scale(type, from); }
  static void byte(std::byte from, int8_t& to) { to = static_cast<int8_t>(from); }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

PackedWeights PackedWeights::pack(const WeightSpec& spec, TileOrder order, int64_t rows, int64_t cols, int threads,
                                  const std::function<void(int64_t row, const PlaneRow& out)>& fill,
                                  std::span<const float> codebooks) {
  PackedWeights packed;
  PackedView& view = packed.view_;
  view.spec = spec;
  view.order = order;
  view.record = record_layout(spec, order);
  view.rows = rows;
  view.cols = cols;
  view.tiles = ceil_div(rows, order.rows);
  view.records = ceil_div(cols, view.record.cols);
  const int64_t tile_bytes = view.records * view.record.bytes;
  packed.data_ = AlignedBuffer<std::byte>(view.tiles * tile_bytes);
  view.data = packed.data_.data();
  if (spec.code.is_codebook()) packed.take_codebooks(codebooks);

  parallel_for(threads, view.tiles, 1, [&](int, int64_t begin, int64_t end) {
    Planes planes(spec, 1, cols);
    const PlaneRow row = planes.row(0);
    for (int64_t tile = begin; tile < end; ++tile) {
      std::byte* to = packed.data_.data() + tile * tile_bytes;
      std::memset(to, 0, static_cast<size_t>(tile_bytes));
      const int64_t first = tile * order.rows;
      for (int r = 0; r < order.rows && first + r < rows; ++r) {
        fill(first + r, row);
        move_row(view, to, r, row, Packer{});
      }
    }
  });
  return packed;
}

void PackedWeights::take_codebooks(std::span<const float> codebooks) {
  const auto count = static_cast<int64_t>(codebooks.size());
  codebooks_ = AlignedBuffer<float>(count);
  fixed_codebooks_ = AlignedBuffer<int16_t>(count);
  std::ranges::copy(codebooks, codebooks_.data());
  const float unit = codebook_unit(view_.spec.code, codebooks_.data());
  for (int64_t i = 0; i < count; ++i) fixed_codebooks_[i] = fixed_codeword(codebooks_[i], unit);
  view_.codebooks = {codebooks_.data(), fixed_codebooks_.data(), unit};
}

void unpack_row(const PackedView& view, int64_t row, const PlaneRow& out) {
  // Unpacker only reads the records; one walk serves both directions.
  std::byte* tile = const_cast<std::byte*>(view.at(row / view.order.rows, 0));
  move_row(view, tile, static_cast<int>(row % view.order.rows), out, Unpacker{});
}

}  // namespace octalane
