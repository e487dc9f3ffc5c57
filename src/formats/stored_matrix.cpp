#include <cstring>
#include <vector>

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

void StoredMatrix::read_row(int64_t row, std::byte* out) const {
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

std::vector<float> StoredMatrix::codebooks() const { return {}; }

void split_row(const Format& format, const std::byte* blocks, int64_t cols, std::span<std::byte* const> parts) {
  for_each_piece(format, cols, [&](size_t p, int64_t from, int64_t to) {
    std::memcpy(parts[p] + to, blocks + from, static_cast<size_t>(format.parts[p].bytes));
  });
}

}  // namespace octalane
