#include "additive/moments.h"

#include <algorithm>
#include <cmath>

#include "additive/wide.h"
#include "core/parallel.h"

namespace octalane::additive {
namespace {

constexpr int64_t kPanel = 2 * kLanes;
constexpr int64_t kRows = 4;
constexpr int64_t kCholeskyBlock = 64;

using Doubles = double __attribute__((vector_size(32)));
struct __attribute__((packed, may_alias)) DoublesAt {
  Doubles value;
};

OCTALANE_WIDE double dot(const double* a, const double* b, int64_t count) {
  Doubles sums[2] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 2; ++k) {
      sums[k] += reinterpret_cast<const DoublesAt*>(a + i + 4 * k)->value *
                 reinterpret_cast<const DoublesAt*>(b + i + 4 * k)->value;
    }
  }
  sums[0] += sums[1];
  double sum = sums[0][0] + sums[0][1] + sums[0][2] + sums[0][3];
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Sixteen columns of kRows rows of x H.
OCTALANE_WIDE void multiply_panel(const float* x, int64_t stride, int64_t begin, int64_t end, const float* panel,
                                  float* out) {
  Wide sums[kRows][2] = {};
  for (int64_t i = begin; i < end; ++i) {
    const Wide left = wide(panel + i * kPanel)->value, right = wide(panel + i * kPanel + kLanes)->value;
    for (int64_t r = 0; r < kRows; ++r) {
      sums[r][0] += left * x[r * stride + i];
      sums[r][1] += right * x[r * stride + i];
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    wide(out + r * kPanel)->value = sums[r][0];
    wide(out + r * kPanel + kLanes)->value = sums[r][1];
  }
}

}  // namespace

OCTALANE_WIDE void add_rows(const float* x, int64_t vector, const float* rows, int64_t stride, int64_t count,
                            float* y) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Wide sum = wide(y + i)->value;
    for (int64_t t = 0; t < vector; ++t) sum += wide(rows + t * stride + i)->value * x[t];
    wide(y + i)->value = sum;
  }
  for (; i < count; ++i) {
    for (int64_t t = 0; t < vector; ++t) y[i] += rows[t * stride + i] * x[t];
  }
}

bool cholesky(double* a, int64_t size, int64_t stride, int threads) {
  for (int64_t first = 0; first < size; first += kCholeskyBlock) {
    const int64_t last = std::min(size, first + kCholeskyBlock);
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = first; j <= i; ++j) {
        const double rest = a[i * stride + j] - dot(a + i * stride, a + j * stride, j);
        if (i == j) {
          if (!(rest > 0)) return false;
          a[i * stride + i] = std::sqrt(rest);
        } else {
          a[i * stride + j] = rest / a[j * stride + j];
        }
      }
    }
    parallel_for(threads, size - last, 8, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = last + begin; i < last + end; ++i) {
        for (int64_t j = first; j < last; ++j) {
          a[i * stride + j] = (a[i * stride + j] - dot(a + i * stride, a + j * stride, j)) / a[j * stride + j];
        }
      }
    });
  }
  return true;
}

bool solve(double* a, double* b, int64_t size) {
  if (!cholesky(a, size, size, 1)) return false;
  for (int64_t i = 0; i < size; ++i) b[i] = (b[i] - dot(a + i * size, b, i)) / a[i * size + i];
  for (int64_t i = size - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < size; ++k) b[i] -= a[k * size + i] * b[k];
    b[i] /= a[i * size + i];
  }
  return true;
}

Expected<Moments> Moments::prepare(const float* h, int64_t size, double damping, int threads) {
  double diagonal = 0;
  for (int64_t i = 0; i < size; ++i) diagonal += h[i * size + i];
  diagonal /= static_cast<double>(size);
  for (int64_t i = 0; i < size * size; ++i) {
    if (!std::isfinite(h[i])) {
      return fail("second moments: row {}, column {}: wanted a finite value, got {}", i / size, i % size, h[i]);
    }
  }
  if (!(diagonal > 0)) return fail("second moments: wanted a diagonal with a positive sum, got {}", diagonal);
  Moments out;
  out.size_ = size;
  out.rows_.resize(static_cast<size_t>(size * size));
  out.root_.resize(static_cast<size_t>(size * size));
  // Reversed, so that the lower triangle of its root is the upper one wanted.
  std::vector<double> reversed(static_cast<size_t>(size * size));
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = 0; k < size; ++k) {
      const double value = h[i * size + k] / diagonal + (i == k ? damping : 0.0);
      out.rows_[static_cast<size_t>(i * size + k)] = static_cast<float>(value);
      reversed[static_cast<size_t>((size - 1 - i) * size + size - 1 - k)] = value;
    }
  }
  out.panels_ = Panels(out.rows_.data(), size);
  if (!cholesky(reversed.data(), size, size, threads)) {
    return fail("second moments: wanted a positive definite matrix, got another");
  }
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = i; k < size; ++k) {
      out.root_[static_cast<size_t>(i * size + k)] =
          static_cast<float>(reversed[static_cast<size_t>((size - 1 - i) * size + size - 1 - k)]);
    }
  }
  return out;
}

Panels::Panels(const float* rows, int64_t size)
    : size_(size), values_(static_cast<size_t>((size + kPanel - 1) / kPanel * size * kPanel)) {
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = 0; k < size; ++k) {
      values_[static_cast<size_t>((k / kPanel * size + i) * kPanel + k % kPanel)] = rows[i * size + k];
    }
  }
}

void Panels::multiply(const float* x, int64_t count, int64_t begin, int64_t end, float* out) const {
  // A panel stays in the cache while all rows pass it.
  float sums[kRows * kPanel];
  std::vector<float> padded;
  if (count % kRows != 0) {
    padded.assign(static_cast<size_t>(kRows * size_), 0.0f);
    std::copy_n(x + count / kRows * kRows * size_, count % kRows * size_, padded.data());
  }
  for (int64_t first = 0; first < size_; first += kPanel) {
    const int64_t width = std::min(kPanel, size_ - first);
    for (int64_t r = 0; r < count; r += kRows) {
      const int64_t here = std::min(kRows, count - r);
      multiply_panel(here < kRows ? padded.data() : x + r * size_, size_, begin, end, values_.data() + first * size_,
                     sums);
      for (int64_t k = 0; k < here; ++k) std::copy_n(sums + k * kPanel, width, out + (r + k) * size_ + first);
    }
  }
}

}  // namespace octalane::additive
