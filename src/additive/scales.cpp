#include <algorithm>
#include <vector>

#include "additive/fit.h"
#include "core/parallel.h"

namespace octalane::additive {
namespace {

constexpr int64_t kRowsTogether = 32;

/// Normal equations of the scales of some rows, and their solution.
class ScaleRows {
 public:
  ScaleRows(Fit& fit, int64_t first, int64_t count)
      : fit_(fit),
        first_(first),
        count_(count),
        units_(static_cast<size_t>(count * fit.cols)),
        products_(units_.size()),
        left_(static_cast<size_t>(count * fit.groups * fit.groups)),
        right_(static_cast<size_t>(count * fit.groups)) {}

  void run() {
    for (int64_t r = 0; r < count_; ++r) {
      for (int64_t j = 0; j < fit_.vectors; ++j) {
        add_codewords(fit_.shape, fit_.books.data(), fit_.code(first_ + r, j), unit(r) + j * fit_.shape.vector);
      }
    }
    for (int64_t g = 0; g < fit_.groups; ++g) add_group(g);
    for (int64_t r = 0; r < count_; ++r) set_scales(r);
  }

 private:
  float* unit(int64_t r) { return units_.data() + r * fit_.cols; }
  int64_t group_end(int64_t g) const { return std::min(fit_.cols, (g + 1) * fit_.group_columns()); }

  void add_group(int64_t g) {
    const int64_t begin = g * fit_.group_columns(), end = group_end(g);
    const std::vector<float>& products = fit_.moments != nullptr ? products_ : units_;
    if (fit_.moments != nullptr) fit_.moments->panels().multiply(units_.data(), count_, begin, end, products_.data());
    for (int64_t r = 0; r < count_; ++r) {
      const float* product = products.data() + r * fit_.cols;
      const float* weights = fit_.weights.data() + (first_ + r) * fit_.cols;
      double* left = left_.data() + (r * fit_.groups + g) * fit_.groups;
      double& right = right_[static_cast<size_t>(r * fit_.groups + g)];
      for (int64_t other = 0; other < fit_.groups; ++other) {
        if (fit_.moments == nullptr && other != g) continue;
        for (int64_t k = other * fit_.group_columns(); k < group_end(other); ++k) {
          left[other] += double{product[k]} * double{unit(r)[k]};
          right += double{product[k]} * double{weights[k]};
        }
      }
    }
  }

  /// Groups that decode to zero keep their scale.
  void set_scales(int64_t r) {
    double* left = left_.data() + r * fit_.groups * fit_.groups;
    double* right = right_.data() + r * fit_.groups;
    float* scales = fit_.scales.data() + (first_ + r) * fit_.groups;
    for (int64_t g = 0; g < fit_.groups; ++g) {
      double& diagonal = left[g * fit_.groups + g];
      if (scales[g] != 0 && diagonal > 0) continue;
      for (int64_t other = 0; other < fit_.groups; ++other) {
        left[g * fit_.groups + other] = left[other * fit_.groups + g] = 0;
      }
      diagonal = 1;
      right[g] = double{scales[g]};
    }
    if (!solve(left, right, fit_.groups)) return;
    for (int64_t g = 0; g < fit_.groups; ++g) {
      const float scale = round_scale(fit_, static_cast<float>(right[g]));
      if (scale > 0) scales[g] = scale;
    }
  }

  Fit& fit_;
  int64_t first_, count_;
  std::vector<float> units_, products_;  // rows x cols: sums of codewords, and those of one group times H
  std::vector<double> left_, right_;     // rows x groups x groups, rows x groups
};

}  // namespace

void fit_scales(Fit& fit) {
  const int64_t blocks = (fit.rows + kRowsTogether - 1) / kRowsTogether;
  parallel_for(fit.threads, blocks, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      ScaleRows(fit, b * kRowsTogether, std::min(kRowsTogether, fit.rows - b * kRowsTogether)).run();
    }
  });
}

}  // namespace octalane::additive
