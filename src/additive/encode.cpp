#include "additive/encode.h"

#include <algorithm>
#include <cmath>

#include "additive/fit.h"
#include "additive/sums.h"
#include "core/half.h"

namespace octalane {
namespace {

using namespace additive;

constexpr int64_t kRowsTogether = 32;
constexpr float kLargest = 65504.0f;  ///< of a weight
constexpr int kSteps = 8;             ///< of conjugate gradients, each time
constexpr int kFirstRounds = 3;       ///< without moments, before those with them
constexpr double kWorthwhile = 3e-3;  ///< share of the loss that a round must take away to be followed by another
constexpr int kBookExponent = 10;     ///< codebooks take this much of the matrix's magnitude, scales the rest

Status check(int64_t rows, int64_t cols, const AdditiveShape& shape) {
  const bool known = (shape.books == 1 || shape.books == 2) && (shape.vector == 4 || shape.vector == 8) &&
                     (shape.group == 0 || shape.group == 32 || shape.group == 64 || shape.group == 128);
  if (!known) {
    return fail("additive codebooks: wanted 1 or 2 of 4 or 8 columns, groups of 32, 64, 128 or a row, got {} of {}, {}",
                shape.books, shape.vector, shape.group);
  }
  if (rows < 1 || cols < shape.vector || cols % shape.vector != 0) {
    return fail("additive codebooks: wanted rows of a multiple of {} columns, got {} x {}", shape.vector, rows, cols);
  }
  return {};
}

float cleaned(float value) { return std::isnan(value) ? 0.0f : std::clamp(value, -kLargest, kLargest); }

/// Exponent of the largest root mean square of a group: scales are kept near 1.
int magnitude(const float* w, int64_t rows, int64_t cols, int64_t columns) {
  double largest = 0;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t first = 0; first < cols; first += columns) {
      const int64_t last = std::min(cols, first + columns);
      double sum = 0;
      for (int64_t k = first; k < last; ++k) sum += double{cleaned(w[n * cols + k])} * double{cleaned(w[n * cols + k])};
      largest = std::max(largest, sum / static_cast<double>(last - first));
    }
  }
  return largest > 0 ? std::ilogb(std::sqrt(largest)) : 0;
}

Fit make_fit(const float* w, int64_t rows, int64_t cols, const AdditiveShape& shape, int threads) {
  Fit fit{.shape = shape,
          .rows = rows,
          .cols = cols,
          .vectors = cols / shape.vector,
          .groups = shape.groups(cols),
          .threads = threads};
  const int exponent = magnitude(w, rows, cols, fit.group_columns());
  fit.book_exponent = std::clamp(exponent, -kBookExponent, kBookExponent);
  fit.scale_exponent = exponent - fit.book_exponent;
  fit.weights.resize(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows * cols; ++i) fit.weights[static_cast<size_t>(i)] = std::ldexp(cleaned(w[i]), -exponent);
  fit.scales.resize(static_cast<size_t>(rows * fit.groups));
  fit.books.resize(static_cast<size_t>(shape.codebook_values()));
  fit.codes.resize(static_cast<size_t>(rows * fit.vectors * shape.books));
  return fit;
}

AdditiveMatrix stored(const Fit& fit) {
  AdditiveMatrix out{.shape = fit.shape, .rows = fit.rows, .cols = fit.cols, .codes = fit.codes};
  for (const float value : fit.books) out.codebooks.push_back(f32_to_f16(std::ldexp(value, fit.book_exponent)));
  for (const float value : fit.scales) out.scales.push_back(f32_to_f16(std::ldexp(value, fit.scale_exponent)));
  return out;
}

/// The parts of a fit that change, at its best.
struct Best {
  std::vector<float> scales, books;
  std::vector<uint8_t> codes;
  double loss = 0;

  explicit Best(const Fit& fit) { take(fit, additive::loss(fit)); }
  void take(const Fit& fit, double value) {
    scales = fit.scales;
    books = fit.books;
    codes = fit.codes;
    loss = value;
  }
  void give(Fit& fit) const {
    fit.scales = scales;
    fit.books = books;
    fit.codes = codes;
  }
};

/// Says how far the work is, and whether to go on.
class Steps {
 public:
  Steps(const EncodeOptions& options, int total) : options_(options), total_(total) {}
  bool next() {
    if (options_.progress) options_.progress(static_cast<double>(done_++) / total_);
    return !options_.cancelled || !options_.cancelled();
  }
  void skip_to(int step) { done_ = step; }

 private:
  const EncodeOptions& options_;
  int total_, done_ = 0;
};

/// Rounds of the three steps until they are no longer worth it; the fit is left at its best. False when cancelled.
bool run_rounds(Fit& fit, int rounds, const EncodeOptions& options, Steps& steps) {
  Best best(fit);
  for (int round = 0; round < rounds; ++round) {
    if (!steps.next()) return false;
    reseed_unused(fit);
    fit_codebooks(fit, kSteps);
    round_to_stored(fit);
    fit_scales(fit);
    improve_codes(fit, options.beam);
    const double now = loss(fit), before = best.loss;
    if (now < before) best.take(fit, now);
    if (!(now < before * (1 - kWorthwhile))) break;
  }
  best.give(fit);
  return true;
}

}  // namespace

Expected<AdditiveMatrix> encode_additive(const float* w, int64_t rows, int64_t cols, const AdditiveShape& shape,
                                         const EncodeOptions& options) {
  if (const Status checked = check(rows, cols, shape); !checked) return fail_with(checked);
  if (options.beam < 8 || options.beam > 256 || 256 % options.beam != 0) {
    return fail("additive codebooks: wanted a beam of 8, 16, 32, 64, 128 or 256, got {}", options.beam);
  }
  const bool calibrated = options.second_moments != nullptr;
  const int free_rounds = calibrated ? std::min(options.rounds, kFirstRounds) : options.rounds;
  Steps steps(options, 1 + free_rounds + (calibrated ? options.rounds : 0));
  const auto cancelled = [] { return fail("cancelled"); };
  if (!steps.next()) return cancelled();
  Fit fit = make_fit(w, rows, cols, shape, options.threads);
  start_with_kmeans(fit, options.seed);
  if (!run_rounds(fit, free_rounds, options, steps)) return cancelled();
  if (!calibrated) return stored(fit);

  const Expected<Moments> moments = Moments::prepare(options.second_moments, cols, options.damping, options.threads);
  if (!moments) return fail_with(moments);
  steps.skip_to(1 + free_rounds);
  fit.moments = &*moments;
  Best best(fit);
  feed_errors_forward(fit, options.beam);
  if (const double now = loss(fit); now < best.loss) {
    best.take(fit, now);
  } else {
    best.give(fit);
  }
  if (!run_rounds(fit, options.rounds, options, steps)) return cancelled();
  return stored(fit);
}

void decode_additive_row(const AdditiveMatrix& matrix, int64_t n, float* out) {
  const int64_t v = matrix.shape.vector, vectors = matrix.cols / v;
  const int64_t groups = matrix.shape.groups(matrix.cols),
                columns = matrix.shape.group == 0 ? matrix.cols : matrix.shape.group;
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const uint8_t* codes = matrix.codes.data() + (n * vectors + k / v) * matrix.shape.books;
    float sum = f16_to_f32(matrix.codebooks[static_cast<size_t>(codes[0] * v + k % v)]);
    if (matrix.shape.books == 2) sum += f16_to_f32(matrix.codebooks[static_cast<size_t>((256 + codes[1]) * v + k % v)]);
    out[k] = sum * f16_to_f32(matrix.scales[static_cast<size_t>(n * groups + k / columns)]);
  }
}

MatrixError matrix_error(const float* before, const float* after, int64_t rows, int64_t cols,
                         const float* second_moments, int threads) {
  const Panels panels = second_moments != nullptr ? Panels(second_moments, cols) : Panels();
  // Squares of E and W, and both weighted.
  const std::vector<double> sums = sum_in_parts(threads, rows, 4, [&](int64_t begin, int64_t end, double* sum) {
    const auto size = static_cast<size_t>(kRowsTogether * cols);
    std::vector<float> error(size), product(size);
    const auto weighted = [&](const float* values, int64_t count) {
      panels.multiply(values, count, 0, cols, product.data());
      double total = 0;
      for (int64_t i = 0; i < count * cols; ++i) total += double{product[static_cast<size_t>(i)]} * double{values[i]};
      return total;
    };
    for (int64_t first = begin; first < end; first += kRowsTogether) {
      const int64_t count = std::min(kRowsTogether, end - first);
      const float *w = before + first * cols, *now = after + first * cols;
      for (int64_t i = 0; i < count * cols; ++i) {
        const float difference = now[i] - w[i];
        error[static_cast<size_t>(i)] = difference;
        sum[0] += double{difference} * double{difference};
        sum[1] += double{w[i]} * double{w[i]};
      }
      if (second_moments == nullptr) continue;
      sum[2] += weighted(error.data(), count);
      sum[3] += weighted(w, count);
    }
  });
  const auto ratio = [](double error, double of) { return of > 0 ? std::sqrt(std::max(0.0, error) / of) : 0.0; };
  const double relative = ratio(sums[0], sums[1]);
  return {relative, second_moments != nullptr ? ratio(sums[2], sums[3]) : relative};
}

}  // namespace octalane
