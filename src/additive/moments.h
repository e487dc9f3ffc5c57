// Second moments of a layer's inputs, prepared for products and searches. Private to the additive room.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"

namespace octalane::additive {

/// A square matrix in panels of sixteen columns, for products from the left.
class Panels {
 public:
  Panels() = default;
  Panels(const float* rows, int64_t size);
  /// out[count][size] = x[:, begin..end) H[begin..end, :]; x and out have rows of `size`.
  void multiply(const float* x, int64_t count, int64_t begin, int64_t end, float* out) const;

 private:
  int64_t size_ = 0;
  std::vector<float> values_;  // [size / 16, rounded up][size][16]
};

/// H, damped and scaled to a mean diagonal of 1.
class Moments {
 public:
  /// h: size x size row-major, symmetric. Fails on values that are not finite, or a diagonal without a positive sum.
  static Expected<Moments> prepare(const float* h, int64_t size, double damping, int threads);

  int64_t size() const { return size_; }
  const float* row(int64_t i) const { return rows_.data() + i * size_; }
  /// H = root root^T, upper triangular: column i of a row E root depends on columns of E up to i.
  const float* root_row(int64_t i) const { return root_.data() + i * size_; }

  const Panels& panels() const { return panels_; }

 private:
  int64_t size_ = 0;
  std::vector<float> rows_, root_;
  Panels panels_;
};

/// Lower triangular L, a = L L^T, in place, of size x size with row stride `stride`; a must be positive definite.
/// False when it is not.
bool cholesky(double* a, int64_t size, int64_t stride, int threads);

/// Solves a x = b for a positive definite a, both overwritten. False when a is not.
bool solve(double* a, double* b, int64_t size);

/// y[0..count) += sum over t < vector of x[t] * rows[t * stride + i].
void add_rows(const float* x, int64_t vector, const float* rows, int64_t stride, int64_t count, float* y);

}  // namespace octalane::additive
