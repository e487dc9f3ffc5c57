#pragma once

#include "core/inline.h"
#include "core/packed_view.h"

namespace octalane::tiles {
namespace {

/// Bytes ahead of use that a gemv fetches weights, all its streams together. Far more than a latency of memory: 4096 x
/// 4096 weights of 4 bits, one token, cold, took 0.31 ms with 2.5 KiB, 0.26 with 5, 0.23 with 10, 0.21 with 16, 0.24
/// with 32 (Zen 5, 2026-11). It has to fit in the first-level cache beside the tokens.
inline constexpr int kAhead = 16 << 10;

/// Lines that a gemv fetches with every block of 32 columns, so that fetches spread evenly over a record.
OCTALANE_INLINE int lines_per_block(const RecordLayout& record) {
  const int blocks = record.cols / kBlockCols;
  return (record.bytes + 64 * blocks - 1) / (64 * blocks);
}

/// `streams`: that are read at once.
OCTALANE_INLINE void prefetch_ahead(const std::byte* from, int lines, int streams = 1) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(from + kAhead / streams + i * 64);
}

/// A share of what is decoded next, fetched line by line while a panel is multiplied.
struct NextLines {
  const std::byte* line = nullptr;
  const std::byte* end = nullptr;
  int per_block = 0;  ///< of 32 columns

  OCTALANE_INLINE void fetch(int blocks) {
    for (int i = 0; i < blocks * per_block && line < end; ++i, line += 64) __builtin_prefetch(line);
  }
};

}  // namespace
}  // namespace octalane::tiles
