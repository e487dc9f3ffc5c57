#include "additive/fit.h"

#include <algorithm>
#include <cmath>

#include "additive/search.h"
#include "additive/sums.h"
#include "core/half.h"

namespace octalane::additive {
namespace {

constexpr int64_t kRowsTogether = 32;
constexpr float kLargestHalf = 65504.0f;

float round_at(float value, int exponent) {
  const float stored = std::clamp(std::ldexp(value, exponent), -kLargestHalf, kLargestHalf);
  return std::ldexp(f16_to_f32(f32_to_f16(stored)), -exponent);
}

/// The normal equations of the codebooks, applied: out += what codewords receive from the rows of `fit`,
/// (base - rows decoded with `books`) H, scale by scale. Without base: rows decoded with `books`, H.
void gather_rows(const Fit& fit, const float* books, bool residual, int64_t begin, int64_t end, double* out) {
  const int64_t cols = fit.cols, v = fit.shape.vector;
  std::vector<float> rows(static_cast<size_t>(kRowsTogether * cols)), product(rows.size());
  for (int64_t first = begin; first < end; first += kRowsTogether) {
    const int64_t count = std::min(kRowsTogether, end - first);
    for (int64_t n = first; n < first + count; ++n) {
      float* row = rows.data() + (n - first) * cols;
      for (int64_t j = 0; j < fit.vectors; ++j) {
        add_codewords(fit.shape, books, fit.code(n, j), row + j * v);
        const float scale = fit.scale(n, j);
        for (int64_t t = 0; t < v; ++t) {
          row[j * v + t] *= scale;
          if (residual) row[j * v + t] = fit.weights[static_cast<size_t>(n * cols + j * v + t)] - row[j * v + t];
        }
      }
    }
    const float* sums = rows.data();
    if (fit.moments != nullptr) {
      fit.moments->panels().multiply(rows.data(), count, 0, cols, product.data());
      sums = product.data();
    }
    for (int64_t n = first; n < first + count; ++n) {
      for (int64_t j = 0; j < fit.vectors; ++j) {
        const double scale = fit.scale(n, j);
        const float* from = sums + (n - first) * cols + j * v;
        for (int b = 0; b < fit.shape.books; ++b) {
          double* to = out + (b * kCodewords + fit.code(n, j)[b]) * v;
          for (int64_t t = 0; t < v; ++t) to[t] += scale * double{from[t]};
        }
      }
    }
  }
}

std::vector<double> normal_product(const Fit& fit, const std::vector<float>& books, bool residual) {
  return sum_in_parts(fit.threads, fit.rows, fit.shape.codebook_values(), [&](int64_t begin, int64_t end, double* sum) {
    gather_rows(fit, books.data(), residual, begin, end, sum);
  });
}

/// The diagonal of the normal equations; 0 where a codeword is not used.
std::vector<double> normal_diagonal(const Fit& fit) {
  const int64_t v = fit.shape.vector;
  return sum_in_parts(fit.threads, fit.rows, fit.shape.codebook_values(), [&](int64_t begin, int64_t end, double* sum) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t j = 0; j < fit.vectors; ++j) {
        const double weight = double{fit.scale(n, j)} * double{fit.scale(n, j)};
        for (int b = 0; b < fit.shape.books; ++b) {
          double* to = sum + (b * kCodewords + fit.code(n, j)[b]) * v;
          for (int64_t t = 0; t < v; ++t) {
            const int64_t k = j * v + t;
            to[t] += weight * (fit.moments == nullptr ? 1.0 : double{fit.moments->row(k)[k]});
          }
        }
      }
    }
  });
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void add_codewords(const AdditiveShape& shape, const float* books, const uint8_t* codes, float* out) {
  const int64_t v = shape.vector;
  std::copy_n(books + codes[0] * v, v, out);
  for (int b = 1; b < shape.books; ++b) {
    const float* word = books + (b * kCodewords + codes[b]) * v;
    for (int64_t t = 0; t < v; ++t) out[t] += word[t];
  }
}

void decode_row(const Fit& fit, int64_t n, float* out) {
  const int64_t v = fit.shape.vector;
  for (int64_t j = 0; j < fit.vectors; ++j) {
    add_codewords(fit.shape, fit.books.data(), fit.code(n, j), out + j * v);
    const float scale = fit.scale(n, j);
    for (int64_t t = 0; t < v; ++t) out[j * v + t] *= scale;
  }
}

double loss(const Fit& fit) {
  const std::vector<double> sum = sum_in_parts(fit.threads, fit.rows, 1, [&](int64_t begin, int64_t end, double* out) {
    std::vector<float> rows(static_cast<size_t>(kRowsTogether * fit.cols)), product(rows.size());
    for (int64_t first = begin; first < end; first += kRowsTogether) {
      const int64_t count = std::min(kRowsTogether, end - first), values = count * fit.cols;
      for (int64_t n = first; n < first + count; ++n) decode_row(fit, n, rows.data() + (n - first) * fit.cols);
      for (int64_t i = 0; i < values; ++i) {
        rows[static_cast<size_t>(i)] =
            fit.weights[static_cast<size_t>(first * fit.cols + i)] - rows[static_cast<size_t>(i)];
      }
      if (fit.moments != nullptr) fit.moments->panels().multiply(rows.data(), count, 0, fit.cols, product.data());
      const std::vector<float>& other = fit.moments != nullptr ? product : rows;
      for (int64_t i = 0; i < values; ++i) {
        *out += double{rows[static_cast<size_t>(i)]} * double{other[static_cast<size_t>(i)]};
      }
    }
  });
  return sum[0];
}

void fit_codebooks(Fit& fit, int steps) {
  const std::vector<double> diagonal = normal_diagonal(fit);
  const auto scaled = [&](const std::vector<double>& from) {
    std::vector<double> out(from.size(), 0.0);
    for (size_t i = 0; i < from.size(); ++i) {
      if (diagonal[i] > 0) out[i] = from[i] / diagonal[i];
    }
    return out;
  };
  std::vector<double> rest = normal_product(fit, fit.books, true);
  std::vector<double> sum(rest.size(), 0.0), direction = scaled(rest);
  double size = dot(rest, direction);
  for (int step = 0; step < steps && size > 0; ++step) {
    const std::vector<double> product =
        normal_product(fit, std::vector<float>(direction.begin(), direction.end()), false);
    const double curvature = dot(direction, product);
    if (!(curvature > 0)) break;
    const double length = size / curvature;
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += length * direction[i];
      rest[i] -= length * product[i];
    }
    const std::vector<double> next = scaled(rest);
    const double next_size = dot(rest, next);
    for (size_t i = 0; i < sum.size(); ++i) direction[i] = next[i] + next_size / size * direction[i];
    size = next_size;
  }
  for (size_t i = 0; i < sum.size(); ++i) fit.books[i] = static_cast<float>(double{fit.books[i]} + sum[i]);
}

float round_scale(const Fit& fit, float scale) { return round_at(scale, fit.scale_exponent); }

void round_to_stored(Fit& fit) {
  for (float& scale : fit.scales) scale = round_scale(fit, scale);
  for (float& value : fit.books) value = round_at(value, fit.book_exponent);
}

void reseed_unused(Fit& fit) {
  const AdditiveShape& shape = fit.shape;
  const int64_t v = shape.vector, count = fit.rows * fit.vectors;
  std::vector<int64_t> used(static_cast<size_t>(shape.books * kCodewords), 0);
  for (int64_t i = 0; i < count; ++i) {
    for (int b = 0; b < shape.books; ++b) {
      ++used[static_cast<size_t>(b * kCodewords + fit.codes[static_cast<size_t>(i * shape.books + b)])];
    }
  }
  const auto unused = std::ranges::count(used, 0);
  if (unused == 0) return;

  std::vector<float> errors(static_cast<size_t>(count));
  const auto lacking = [&](int64_t i, float* rest) {  // in units of the scale
    const float scale = fit.scale(i / fit.vectors, i % fit.vectors);
    add_codewords(shape, fit.books.data(), fit.codes.data() + i * shape.books, rest);
    for (int64_t t = 0; t < v; ++t) rest[t] = fit.weights[static_cast<size_t>(i * v + t)] / scale - rest[t];
    return scale;
  };
  parallel_for(fit.threads, count, 1024, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float rest[8] = {}, sum = 0;
      if (fit.scale(i / fit.vectors, i % fit.vectors) == 0) continue;
      const float scale = lacking(i, rest);
      for (int64_t t = 0; t < v; ++t) sum += rest[t] * rest[t];
      errors[static_cast<size_t>(i)] = sum * scale * scale;
    }
  });
  std::vector<int64_t> worst(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) worst[static_cast<size_t>(i)] = i;
  const auto wanted = std::min<int64_t>(unused, count);
  std::partial_sort(worst.begin(), worst.begin() + wanted, worst.end(), [&](int64_t a, int64_t b) {
    const float left = errors[static_cast<size_t>(a)], right = errors[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  int64_t next = 0;
  for (int64_t c = 0; c < shape.books * kCodewords && next < wanted; ++c) {
    if (used[static_cast<size_t>(c)] > 0) continue;
    const int64_t i = worst[static_cast<size_t>(next++)];
    if (!(errors[static_cast<size_t>(i)] > 0)) return;
    float rest[8];
    lacking(i, rest);
    const float* old =
        fit.books.data() +
        (c / kCodewords * kCodewords + fit.codes[static_cast<size_t>(i * shape.books + c / kCodewords)]) * v;
    for (int64_t t = 0; t < v; ++t) rest[t] += old[t];  // beside the codeword of the other codebook
    std::copy_n(rest, v, fit.books.data() + c * v);
  }
}

}  // namespace octalane::additive
