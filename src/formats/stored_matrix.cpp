#include <cmath>
#include <cstring>
#include <vector>

#include "core/half.h"
#include "formats/format.h"

namespace octalane {
namespace {

/// Calls visit(part number, its bytes in `blocks`, offset of its bytes in the part's row) for each piece of a row.
template <class Visit>
void for_each_piece(const Format& format, int64_t cols, Visit visit) {
  for (size_t p = 0; p < format.parts.size(); ++p) {
    const FormatPart& part = format.parts[p];
    for (int64_t b = 0; b < cols / format.block; ++b) {
      visit(p, b * format.block_bytes + part.offset, part.per_matrix ? 0 : b * part.bytes);
    }
  }
}

}  // namespace

Status StoredMatrix::check() const {
  if (cols % format->block != 0) {
    return fail("{} columns is not a multiple of {}, the block of {}", cols, format->block, format->name);
  }
  if (format->additive == nullptr) return {};
  for (size_t i = 0; i < kAdditiveParts.size(); ++i) {
    if (parts[i] == nullptr) return fail("{}: wanted {} of their own, got none", format->name, kAdditiveParts[i]);
  }
  for (const float value : codebooks()) {
    if (!std::isfinite(value)) return fail("codebooks: wanted finite values, got {}", value);
  }
  return {};
}

void StoredMatrix::read_row(int64_t row, std::byte* out) const {
  if (format->additive != nullptr) return read_additive_row(*this, row, out);
  if (lies_in_blocks()) {
    const auto bytes = static_cast<size_t>(format->row_bytes(cols));
    std::memcpy(out, parts[0] + row * format->row_bytes(cols), bytes);
    return;
  }
  for_each_piece(*format, cols, [&](size_t p, int64_t to, int64_t from) {
    const FormatPart& part = format->parts[p];
    const int64_t row_start = part.per_matrix ? 0 : row * (cols / format->block) * part.bytes;
    std::memcpy(out + to, parts[p] + row_start + from, static_cast<size_t>(part.bytes));
  });
}

void StoredMatrix::to_planes(int64_t row, const PlaneRow& out) const {
  if (lies_in_blocks()) {
    format->to_planes(parts[0] + row * format->row_bytes(cols), cols, out);
    return;
  }
  std::vector<std::byte> blocks(static_cast<size_t>(format->row_bytes(cols)));
  read_row(row, blocks.data());
  format->to_planes(blocks.data(), cols, out);
}

void StoredMatrix::decode_row(int64_t row, float* out) const {
  const std::vector<float> books = codebooks();
  const Planes planes(format->spec, 1, cols, books.data());
  to_planes(row, planes.row(0));
  octalane::decode_row(format->spec, planes.row(0), cols, out);
}

std::vector<float> StoredMatrix::codebooks() const {
  if (format->additive == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(format->additive->shape.codebook_values()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, parts[1] + 2 * i, sizeof bits);
    values[i] = f16_to_f32(bits);
  }
  return values;
}

std::vector<StoredPart> stored_parts(const Format& format, int64_t cols) {
  if (format.additive != nullptr) {
    const AdditiveShape& shape = format.additive->shape;
    return {{kAdditiveParts[0], shape.code_bytes(cols)},
            {kAdditiveParts[1], 2 * shape.codebook_values(), true},
            {kAdditiveParts[2], 2 * shape.groups(cols)}};
  }
  std::vector<StoredPart> parts;
  for (const FormatPart& part : format.parts) {
    parts.push_back({part.suffix, part.per_matrix ? part.bytes : cols / format.block * part.bytes, part.per_matrix});
  }
  return parts;
}

void split_row(const Format& format, const std::byte* blocks, int64_t cols, std::span<std::byte* const> parts) {
  for_each_piece(format, cols, [&](size_t p, int64_t from, int64_t to) {
    std::memcpy(parts[p] + to, blocks + from, static_cast<size_t>(format.parts[p].bytes));
  });
}

}  // namespace octalane
