#include "additive/second_moments.h"

#include <algorithm>
#include <cmath>

#include "additive/wide.h"
#include "core/parallel.h"

namespace octalane {
namespace {

using namespace additive;

constexpr int64_t kPanel = 2 * kLanes;
constexpr int64_t kRows = 4;
constexpr int64_t kTokens = 256;

/// out[kRows][kPanel] = sum over tokens of left[token][kRows of a panel] right[token][panel].
OCTALANE_WIDE void multiply_panels(const float* left, const float* right, int64_t tokens, float* out) {
  Wide sums[kRows][2] = {};
  for (int64_t t = 0; t < tokens; ++t) {
    const Wide low = wide(right + t * kPanel)->value, high = wide(right + t * kPanel + kLanes)->value;
    for (int64_t r = 0; r < kRows; ++r) {
      sums[r][0] += low * left[t * kPanel + r];
      sums[r][1] += high * left[t * kPanel + r];
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    wide(out + r * kPanel)->value = sums[r][0];
    wide(out + r * kPanel + kLanes)->value = sums[r][1];
  }
}

}  // namespace

void SecondMoments::add(MatrixView<const float> x, int threads) {
  const int64_t panels = (size_ + kPanel - 1) / kPanel;
  std::vector<float> packed(static_cast<size_t>(panels * kTokens * kPanel));
  for (int64_t first = 0; first < x.rows; first += kTokens) {
    const int64_t tokens = std::min(kTokens, x.rows - first);
    const auto panel = [&](int64_t p) { return packed.data() + p * kTokens * kPanel; };
    parallel_for(threads, panels, 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t i = 0; i < std::min(kPanel, size_ - p * kPanel); ++i) {
            const float value = x(first + t, p * kPanel + i);
            panel(p)[t * kPanel + i] = std::isfinite(value) ? value : 0.0f;
          }
        }
      }
    });
    // Blocks at and right of the diagonal, mirrored. Long rows of blocks go with short ones.
    parallel_for(threads, (panels + 1) / 2, 1, [&](int, int64_t begin, int64_t end) {
      float sums[kPanel * kPanel];
      const auto add_row = [&](int64_t p) {
        for (int64_t q = p; q < panels; ++q) {
          for (int64_t r = 0; r < kPanel; r += kRows) {
            multiply_panels(panel(p) + r, panel(q), tokens, sums + r * kPanel);
          }
          for (int64_t i = p * kPanel; i < std::min(size_, (p + 1) * kPanel); ++i) {
            for (int64_t k = std::max(i, q * kPanel); k < std::min(size_, (q + 1) * kPanel); ++k) {
              const float sum = sums[i % kPanel * kPanel + k % kPanel];
              sums_[static_cast<size_t>(i * size_ + k)] += sum;
              if (i != k) sums_[static_cast<size_t>(k * size_ + i)] += sum;
            }
          }
        }
      };
      for (int64_t p = begin; p < end; ++p) {
        add_row(p);
        if (panels - 1 - p != p) add_row(panels - 1 - p);
      }
    });
  }
  tokens_ += x.rows;
}

}  // namespace octalane
