// Sums of x x^T over the inputs of a layer, as encode_additive wants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/matrix_view.h"

namespace octalane {

class SecondMoments {
 public:
  explicit SecondMoments(int64_t size) : size_(size), sums_(static_cast<size_t>(size * size), 0.0f) {}

  /// Adds x[tokens][size]: tokens are summed in fp32, 256 at a time. Values that are not finite count as 0. The same
  /// bits for any number of threads.
  void add(MatrixView<const float> x, int threads);

  int64_t size() const { return size_; }
  int64_t tokens() const { return tokens_; }
  /// size x size, row-major, symmetric.
  const float* values() const { return sums_.data(); }
  /// What one of this size holds.
  static int64_t bytes(int64_t size) { return size * size * static_cast<int64_t>(sizeof(float)); }

 private:
  int64_t size_, tokens_ = 0;
  std::vector<float> sums_;
};

}  // namespace octalane
