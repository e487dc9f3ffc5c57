// Codes of all vectors, a column of vectors after the other, all rows of it together: they share a metric and so the
// tables of the search.
#include <algorithm>
#include <cmath>
#include <vector>

#include "additive/fit.h"
#include "additive/search.h"
#include "core/parallel.h"

namespace octalane::additive {
namespace {

constexpr int64_t kRowsTogether = 64;

/// A v x v block and its inverse.
struct Block {
  float root[64], inverse[64];
};

void invert_lower(const double* l, int64_t v, double* out) {
  std::fill_n(out, v * v, 0.0);
  for (int64_t c = 0; c < v; ++c) {
    for (int64_t r = c; r < v; ++r) {
      double sum = r == c ? 1.0 : 0.0;
      for (int64_t k = c; k < r; ++k) sum -= l[r * v + k] * out[k * v + c];
      out[r * v + c] = sum / l[r * v + r];
    }
  }
}

/// Metric of a vector while all others stay: H's own block, with its Cholesky root and its inverse.
Block own_block(const Moments& moments, int64_t at, int64_t v) {
  double root[64] = {}, inverse[64];
  for (int64_t r = 0; r < v; ++r) {
    for (int64_t c = 0; c < v; ++c) root[r * v + c] = double{moments.row(at + r)[at + c]};
  }
  cholesky(root, v, v, 1);
  invert_lower(root, v, inverse);
  Block out{};
  for (int64_t r = 0; r < v; ++r) {
    for (int64_t c = 0; c < v; ++c) {
      if (c <= r) out.root[r * v + c] = static_cast<float>(root[r * v + c]);
      double sum = 0;
      for (int64_t k = std::max(r, c); k < v; ++k) sum += inverse[k * v + r] * inverse[k * v + c];
      out.inverse[r * v + c] = static_cast<float>(sum);
    }
  }
  return out;
}

/// Metric of a vector whose error later columns make up for: the block of the upper root, and that block's inverse.
Block root_block(const Moments& moments, int64_t at, int64_t v) {
  double lower[64] = {}, inverse[64];  // transposed
  Block out{};
  for (int64_t r = 0; r < v; ++r) {
    for (int64_t c = 0; c < v; ++c) {
      out.root[r * v + c] = moments.root_row(at + r)[at + c];
      lower[c * v + r] = double{out.root[r * v + c]};
    }
  }
  invert_lower(lower, v, inverse);
  for (int64_t r = 0; r < v; ++r) {
    for (int64_t c = 0; c < v; ++c) out.inverse[r * v + c] = static_cast<float>(inverse[c * v + r]);
  }
  return out;
}

enum class Order : uint8_t {
  forward,  ///< a vector answers for the errors before it, later ones will answer for its own
  settled,  ///< all other vectors stay
};

class Sweep {
 public:
  Sweep(Fit& fit, Order order, int beam) : fit_(fit), order_(order), search_(fit.shape.books, fit.shape.vector, beam) {
    if (fit.moments == nullptr) return;
    carried_.assign(fit.weights.size(), 0.0f);
    if (order == Order::settled) start_settled();
  }

  void run() {
    const int64_t v = fit_.shape.vector;
    if (fit_.moments == nullptr) search_.prepare(fit_.books.data(), nullptr, fit_.threads);
    for (int64_t j = 0; j < fit_.vectors; ++j) {
      if (fit_.moments != nullptr) {
        block_ = order_ == Order::forward ? root_block(*fit_.moments, j * v, v) : own_block(*fit_.moments, j * v, v);
        search_.prepare(fit_.books.data(), block_.root, fit_.threads);
      }
      parallel_for(fit_.threads, fit_.rows, kRowsTogether, [&](int, int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n += kRowsTogether) vectors(j, n, std::min(kRowsTogether, end - n));
      });
    }
  }

 private:
  /// carried_ = E H
  void start_settled() {
    parallel_for(fit_.threads, fit_.rows, kRowsTogether, [&](int, int64_t begin, int64_t end) {
      std::vector<float> errors(static_cast<size_t>(kRowsTogether * fit_.cols));
      for (int64_t n = begin; n < end; n += kRowsTogether) {
        const int64_t count = std::min(kRowsTogether, end - n);
        for (int64_t r = 0; r < count; ++r) {
          float* row = errors.data() + r * fit_.cols;
          decode_row(fit_, n + r, row);
          for (int64_t k = 0; k < fit_.cols; ++k) row[k] = weights(n + r)[k] - row[k];
        }
        fit_.moments->panels().multiply(errors.data(), count, 0, fit_.cols, carried(n));
      }
    });
  }

  const float* weights(int64_t n) const { return fit_.weights.data() + n * fit_.cols; }
  float* carried(int64_t n) { return carried_.data() + n * fit_.cols; }

  /// What vector j of row n stands for now.
  void decoded(int64_t n, int64_t j, float* out) const {
    add_codewords(fit_.shape, fit_.books.data(), fit_.code(n, j), out);
    for (int t = 0; t < fit_.shape.vector; ++t) out[t] *= fit_.scale(n, j);
  }

  /// What it would best stand for.
  void target(int64_t n, int64_t j, float* out) {
    const int64_t v = fit_.shape.vector;
    if (fit_.moments == nullptr || order_ == Order::forward) {
      std::copy_n(weights(n) + j * v, v, out);
    } else {
      decoded(n, j, out);
    }
    if (fit_.moments == nullptr) return;
    const float* from = carried(n) + j * v;
    for (int64_t s = 0; s < v; ++s) {
      for (int64_t t = 0; t < v; ++t) out[t] += from[s] * block_.inverse[s * v + t];
    }
  }

  /// New codes for vector j of `count` rows from `first` on.
  void vectors(int64_t j, int64_t first, int64_t count) {
    const int64_t v = fit_.shape.vector;
    float targets[kRowsTogether * 8], before[kRowsTogether * 8];
    for (int64_t r = 0; r < count; ++r) {
      float* x = targets + r * v;
      target(first + r, j, x);
      decoded(first + r, j, before + r * v);
      const float scale = fit_.scale(first + r, j);
      for (int64_t t = 0; t < v; ++t) x[t] = scale > 0 ? x[t] / scale : 0.0f;
    }
    const int64_t stride = fit_.vectors * fit_.shape.books;
    search_.find(targets, count, fit_.code(first, j), stride, order_ == Order::settled);
    if (fit_.moments == nullptr) return;
    for (int64_t r = 0; r < count; ++r) carry(first + r, j, before + r * v);
  }

  void carry(int64_t n, int64_t j, const float* before) {
    const int64_t v = fit_.shape.vector, at = j * v;
    float now[8], step[8];
    decoded(n, j, now);
    if (order_ == Order::forward) {
      for (int64_t t = 0; t < v; ++t) step[t] = weights(n)[at + t] - now[t];
      add_rows(step, v, fit_.moments->root_row(at) + at + v, fit_.cols, fit_.cols - at - v, carried(n) + at + v);
      return;
    }
    bool moved = false;
    for (int64_t t = 0; t < v; ++t) {
      step[t] = before[t] - now[t];
      moved = moved || step[t] != 0;
    }
    if (moved) add_rows(step, v, fit_.moments->row(at), fit_.cols, fit_.cols, carried(n));
  }

  Fit& fit_;
  Order order_;
  CodeSearch search_;
  Block block_{};
  std::vector<float> carried_;  // rows x cols: errors so far times the root, or all errors times H
};

}  // namespace

void feed_errors_forward(Fit& fit, int beam) { Sweep(fit, Order::forward, beam).run(); }

void improve_codes(Fit& fit, int beam) { Sweep(fit, Order::settled, beam).run(); }

}  // namespace octalane::additive
