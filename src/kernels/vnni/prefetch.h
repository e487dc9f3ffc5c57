#pragma once

#include "kernels/vnni/simd.h"

namespace octalane::vnni {
namespace {

/// Bytes ahead of use that a gemv fetches weights: less than a page, more than the latency of memory.
inline constexpr int kAhead = 2560;

OCTALANE_INLINE void prefetch_ahead(const std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(from + kAhead + at, _MM_HINT_T0);
}

}  // namespace
}  // namespace octalane::vnni
