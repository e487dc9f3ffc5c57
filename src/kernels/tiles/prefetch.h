#pragma once

#include "core/inline.h"
#include "core/packed_view.h"

namespace octalane::tiles {
namespace {

/// Bytes ahead of use that a gemv fetches weights: less than a page, more than the latency of memory.
inline constexpr int kAhead = 2560;

/// Lines that a gemv fetches with every block of 32 columns, so that fetches spread evenly over a record.
OCTALANE_INLINE int lines_per_block(const RecordLayout& record) {
  const int blocks = record.cols / kBlockCols;
  return (record.bytes + 64 * blocks - 1) / (64 * blocks);
}

OCTALANE_INLINE void prefetch_ahead(const std::byte* from, int lines) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(from + kAhead + i * 64);
}

}  // namespace
}  // namespace octalane::tiles
