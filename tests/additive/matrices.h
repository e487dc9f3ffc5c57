// Matrices, moments of inputs and fp64 errors for the tests of the encoder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "additive/encode.h"

namespace octalane::test {

using Values = std::vector<float>;

inline Values normal_values(int64_t count, unsigned seed, float deviation = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  Values out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}

/// Normal values whose size differs from row to row and every 32 columns, as that of weights does.
inline Values uneven_values(int64_t rows, int64_t cols, unsigned seed) {
  Values out = normal_values(rows * cols, seed);
  std::mt19937 random(seed + 1);
  std::normal_distribution<float> normal(0.0f, 0.8f);
  for (int64_t n = 0; n < rows; ++n) {
    const float row = normal(random);
    for (int64_t k = 0; k < cols; k += 32) {
      const float factor = std::exp(row + normal(random));
      for (int64_t i = k; i < std::min(cols, k + 32); ++i) out[static_cast<size_t>(n * cols + i)] *= factor;
    }
  }
  return out;
}

/// Inputs of a layer, tokens x cols: channels move together, and some are far larger than others.
inline Values correlated_inputs(int64_t tokens, int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values out(static_cast<size_t>(tokens * cols));
  for (int64_t t = 0; t < tokens; ++t) {
    const float shared[] = {normal(random), normal(random), normal(random)};
    for (int64_t k = 0; k < cols; ++k) {
      const float size = k % 29 == 0 ? 5.0f : 1.0f;
      out[static_cast<size_t>(t * cols + k)] = size * (2 * shared[k % 3] + normal(random));
    }
  }
  return out;
}

/// sum of x x^T
inline Values moments_of(const Values& inputs, int64_t cols) {
  std::vector<double> sums(static_cast<size_t>(cols * cols), 0.0);
  for (size_t t = 0; t < inputs.size(); t += static_cast<size_t>(cols)) {
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        sums[static_cast<size_t>(i * cols + k)] +=
            double{inputs[t + static_cast<size_t>(i)]} * double{inputs[t + static_cast<size_t>(k)]};
      }
    }
  }
  return Values(sums.begin(), sums.end());
}

inline Values decoded(const AdditiveMatrix& matrix) {
  Values out(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t n = 0; n < matrix.rows; ++n) decode_additive_row(matrix, n, out.data() + n * matrix.cols);
  return out;
}

/// |E X^T| / |W X^T| over inputs X, or |E| / |W| over columns [first, last) without.
inline double output_error(const Values& before, const Values& after, int64_t cols, const Values& inputs) {
  double error = 0, norm = 0;
  for (size_t x = 0; x < inputs.size(); x += static_cast<size_t>(cols)) {
    for (size_t n = 0; n < before.size(); n += static_cast<size_t>(cols)) {
      double e = 0, y = 0;
      for (size_t k = 0; k < static_cast<size_t>(cols); ++k) {
        e += (double{after[n + k]} - double{before[n + k]}) * double{inputs[x + k]};
        y += double{before[n + k]} * double{inputs[x + k]};
      }
      error += e * e;
      norm += y * y;
    }
  }
  return std::sqrt(error / norm);
}

inline double relative_error(const Values& before, const Values& after, int64_t cols, int64_t first, int64_t last) {
  double error = 0, norm = 0;
  for (size_t n = 0; n < before.size(); n += static_cast<size_t>(cols)) {
    for (size_t k = n + static_cast<size_t>(first); k < n + static_cast<size_t>(last); ++k) {
      error += std::pow(double{after[k]} - double{before[k]}, 2);
      norm += std::pow(double{before[k]}, 2);
    }
  }
  return std::sqrt(error / norm);
}
inline double relative_error(const Values& before, const Values& after) {
  const auto size = static_cast<int64_t>(before.size());
  return relative_error(before, after, size, 0, size);
}

}  // namespace octalane::test
