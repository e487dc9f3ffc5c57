// Sums that are the same to the bit for any number of threads. Private to the additive room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace octalane::additive {

/// The sum over parts of [0, count) of what body(begin, end, sum) adds to `size` numbers. The parts, and the order in
/// which they are added, depend on count alone.
template <class Body>
std::vector<double> sum_in_parts(int threads, int64_t count, int64_t size, const Body& body) {
  const int64_t parts = std::clamp<int64_t>(count, 1, 16);
  std::vector<double> sums(static_cast<size_t>(parts * size), 0.0);
  parallel_for(threads, parts, 1, [&](int, int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) body(count * p / parts, count * (p + 1) / parts, sums.data() + p * size);
  });
  for (int64_t p = 1; p < parts; ++p) {
    for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] += sums[static_cast<size_t>(p * size + i)];
  }
  sums.resize(static_cast<size_t>(size));
  return sums;
}

}  // namespace octalane::additive
