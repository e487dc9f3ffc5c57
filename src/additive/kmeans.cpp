#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "additive/fit.h"
#include "additive/search.h"
#include "additive/sums.h"
#include "additive/wide.h"

namespace octalane::additive {
namespace {

constexpr int64_t kTrained = 65536;  ///< vectors at most
constexpr int64_t kSeeded = 8192;    ///< of them, for the first choice of codewords
constexpr int kIterations = 12;

/// splitmix64, https://prng.di.unimi.it/splitmix64.c
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

/// Vectors in units of their scale, with their weights.
struct Sample {
  int64_t vector = 8;
  std::vector<float> values, weights;
  int64_t count() const { return static_cast<int64_t>(weights.size()); }
  const float* at(int64_t i) const { return values.data() + i * vector; }
};

/// Vectors of groups with a scale, all or kTrained of them, in the order of a shuffle.
Sample draw_sample(const Fit& fit, Random& random) {
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < fit.rows * fit.vectors; ++i) {
    if (fit.scale(i / fit.vectors, i % fit.vectors) > 0) drawn.push_back(i);
  }
  const int64_t count = std::min<int64_t>(kTrained, std::ssize(drawn));
  for (int64_t i = 0; i < count; ++i) {
    const auto left = static_cast<uint64_t>(std::ssize(drawn) - i);
    std::swap(drawn[static_cast<size_t>(i)],
              drawn[static_cast<size_t>(i + static_cast<int64_t>(random.next() % left))]);
  }
  Sample sample{.vector = fit.shape.vector};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = drawn[static_cast<size_t>(i)];
    const float scale = fit.scale(at / fit.vectors, at % fit.vectors);
    for (int64_t t = 0; t < sample.vector; ++t) {
      sample.values.push_back(fit.weights[static_cast<size_t>(at * sample.vector + t)] / scale);
    }
    sample.weights.push_back(scale * scale);
  }
  return sample;
}

/// nearest[i] = min(nearest[i], |x_i - word|^2)
OCTALANE_WIDE void come_nearer(const float* x, int64_t count, int64_t v, const float* word, float* nearest) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t t = 0; t < v; ++t) sum += (x[i * v + t] - word[t]) * (x[i * v + t] - word[t]);
    nearest[i] = std::min(nearest[i], sum);
  }
}

/// k-means++: each codeword a vector, drawn by weight times squared distance from those before it.
void seed_codewords(const Sample& sample, Random& random, float* book) {
  const int64_t count = std::min(kSeeded, sample.count()), v = sample.vector;
  std::fill_n(book, kCodewords * v, 0.0f);
  std::vector<float> nearest(static_cast<size_t>(count), std::numeric_limits<float>::max());
  for (int64_t c = 0; c < kCodewords; ++c) {
    double total = 0;
    const auto chance = [&](int64_t i) {
      return double{sample.weights[static_cast<size_t>(i)]} * (c == 0 ? 1.0 : double{nearest[static_cast<size_t>(i)]});
    };
    for (int64_t i = 0; i < count; ++i) total += chance(i);
    if (!(total > 0)) return;
    double left = total * random.share();
    int64_t drawn = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (chance(i) <= 0) continue;
      drawn = i;
      left -= chance(i);
      if (left < 0) break;
    }
    std::copy_n(sample.at(drawn), v, book + c * v);
    come_nearer(sample.values.data(), count, v, book + c * v, nearest.data());
  }
}

void assign(const Sample& sample, const float* book, int threads, std::vector<uint8_t>& codes) {
  CodeSearch search(1, static_cast<int>(sample.vector), 1);
  search.prepare(book, nullptr, threads);
  parallel_for(threads, sample.count(), 64, [&](int, int64_t begin, int64_t end) {
    search.find(sample.at(begin), end - begin, codes.data() + begin, 1, false);
  });
}

/// Codewords to the weighted means of their vectors; those without any stay.
void move_to_means(const Sample& sample, const std::vector<uint8_t>& codes, int threads, float* book) {
  const int64_t v = sample.vector, size = v + 1;
  const std::vector<double> sums =
      sum_in_parts(threads, sample.count(), kCodewords * size, [&](int64_t begin, int64_t end, double* sum) {
        for (int64_t i = begin; i < end; ++i) {
          const double weight = sample.weights[static_cast<size_t>(i)];
          double* to = sum + codes[static_cast<size_t>(i)] * size;
          for (int64_t t = 0; t < v; ++t) to[t] += weight * double{sample.at(i)[t]};
          to[v] += weight;
        }
      });
  for (int64_t c = 0; c < kCodewords; ++c) {
    const double* sum = sums.data() + c * size;
    if (!(sum[v] > 0)) continue;
    for (int64_t t = 0; t < v; ++t) book[c * v + t] = static_cast<float>(sum[t] / sum[v]);
  }
}

/// One codebook by k-means; the sample becomes what it leaves.
void train(Sample& sample, Random& random, int threads, float* book) {
  seed_codewords(sample, random, book);
  std::vector<uint8_t> codes(static_cast<size_t>(sample.count()));
  for (int i = 0; i < kIterations; ++i) {
    assign(sample, book, threads, codes);
    move_to_means(sample, codes, threads, book);
  }
  assign(sample, book, threads, codes);
  for (int64_t i = 0; i < sample.count(); ++i) {
    const float* word = book + codes[static_cast<size_t>(i)] * sample.vector;
    for (int64_t t = 0; t < sample.vector; ++t) sample.values[static_cast<size_t>(i * sample.vector + t)] -= word[t];
  }
}

void set_scales_to_norms(Fit& fit) {
  const int64_t columns = fit.group_columns();
  parallel_for(fit.threads, fit.rows, 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t g = 0; g < fit.groups; ++g) {
        const int64_t first = g * columns, last = std::min(fit.cols, first + columns);
        double sum = 0;
        for (int64_t k = first; k < last; ++k) {
          const double weight = fit.weights[static_cast<size_t>(n * fit.cols + k)];
          sum += weight * weight;
        }
        fit.scales[static_cast<size_t>(n * fit.groups + g)] =
            static_cast<float>(std::sqrt(sum / static_cast<double>(last - first)));
      }
    }
  });
}

/// The codeword of each codebook that is nearest to what those before it leave.
void assign_residually(Fit& fit) {
  const int64_t v = fit.shape.vector;
  std::vector<float> rest(fit.weights.size());
  parallel_for(fit.threads, fit.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin * fit.vectors; i < end * fit.vectors; ++i) {
      const float scale = fit.scale(i / fit.vectors, i % fit.vectors);
      for (int64_t k = i * v; k < (i + 1) * v; ++k) {
        rest[static_cast<size_t>(k)] = scale > 0 ? fit.weights[static_cast<size_t>(k)] / scale : 0.0f;
      }
    }
  });
  for (int b = 0; b < fit.shape.books; ++b) {
    const float* book = fit.books.data() + b * kCodewords * v;
    CodeSearch search(1, fit.shape.vector, 1);
    search.prepare(book, nullptr, fit.threads);
    parallel_for(fit.threads, fit.rows, 1, [&](int, int64_t begin, int64_t end) {
      const int64_t first = begin * fit.vectors, count = (end - begin) * fit.vectors;
      search.find(rest.data() + first * v, count, fit.codes.data() + first * fit.shape.books + b, fit.shape.books,
                  false);
      for (int64_t i = first; i < first + count; ++i) {
        const float* word = book + fit.codes[static_cast<size_t>(i * fit.shape.books + b)] * v;
        for (int64_t t = 0; t < v; ++t) rest[static_cast<size_t>(i * v + t)] -= word[t];
      }
    });
  }
}

}  // namespace

void start_with_kmeans(Fit& fit, uint64_t seed) {
  set_scales_to_norms(fit);
  for (float& scale : fit.scales) scale = round_scale(fit, scale);
  Random random(seed);
  Sample sample = draw_sample(fit, random);
  for (int b = 0; b < fit.shape.books; ++b) {
    train(sample, random, fit.threads, fit.books.data() + b * kCodewords * fit.shape.vector);
  }
  round_to_stored(fit);
  assign_residually(fit);
}

}  // namespace octalane::additive
