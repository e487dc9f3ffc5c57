#include "cli/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/half.h"
#include "core/parallel.h"

namespace octalane::cli {
namespace {

/// SplitMix64, https://prng.di.unimi.it/splitmix64.c: one step from any state gives 64 well mixed bits.
uint64_t next_bits(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t state = a;
  state = next_bits(state) ^ b;
  return next_bits(state);
}

/// (0, 1], from the upper 53 bits.
double uniform(uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

constexpr int64_t kUnitCols = 32;  ///< values drawn at once from formats whose block is smaller

}  // namespace

double Gaussian::next() {
  if (has_kept_) {
    has_kept_ = false;
    return kept_;
  }
  const double radius = std::sqrt(-2 * std::log(uniform(random_())));
  const double angle = 2 * std::numbers::pi * uniform(random_());
  kept_ = radius * std::sin(angle);
  has_kept_ = true;
  return radius * std::cos(angle);
}

void Gaussian::fill(std::span<float> out, double deviation) {
  for (float& value : out) value = static_cast<float>(deviation * next());
}

RandomBlocks::RandomBlocks(const Format& format, double deviation, uint64_t seed, int threads)
    : format_(&format),
      seed_(seed),
      unit_cols_(std::max<int64_t>(format.block, kUnitCols)),
      unit_bytes_(format.row_bytes(unit_cols_)),
      pool_(static_cast<size_t>(kPool * unit_bytes_)) {
  std::vector<float> values(static_cast<size_t>(kPool * unit_cols_));
  Gaussian(seed).fill(values, deviation);
  parallel_for(threads, kPool, 64, [&](int, int64_t begin, int64_t end) {
    format.from_float(values.data() + begin * unit_cols_, (end - begin) * unit_cols_,
                      pool_.data() + begin * unit_bytes_);
  });
}

void RandomBlocks::fill_row(uint64_t stream, int64_t row, int64_t cols, std::byte* out) const {
  uint64_t state = mixed(mixed(seed_, stream), static_cast<uint64_t>(row));
  for (int64_t col = 0; col < cols; col += unit_cols_) {
    const auto pick = static_cast<int64_t>(next_bits(state) % kPool);
    const int64_t bytes = format_->row_bytes(std::min(unit_cols_, cols - col));
    std::memcpy(out + format_->row_bytes(col), pool_.data() + pick * unit_bytes_, static_cast<size_t>(bytes));
  }
}

AdditiveMatrix random_additive(const AdditiveShape& shape, int64_t rows, int64_t cols, double deviation, uint64_t seed,
                               uint64_t stream, int threads) {
  const int64_t codes = shape.code_bytes(cols), groups = shape.groups(cols);
  AdditiveMatrix matrix{shape, rows, cols, {}, {}, {}};
  matrix.codes.resize(static_cast<size_t>(rows * codes));
  matrix.scales.resize(static_cast<size_t>(rows * groups));
  Gaussian gaussian(mixed(seed, stream));
  for (int64_t i = 0; i < shape.codebook_values(); ++i) {
    matrix.codebooks.push_back(f32_to_f16(static_cast<float>(gaussian.next() / std::sqrt(shape.books))));
  }
  parallel_for(threads, rows, 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      uint64_t state = mixed(mixed(seed, stream), static_cast<uint64_t>(row));
      uint8_t* to = matrix.codes.data() + row * codes;
      for (int64_t i = 0; i < codes; ++i) to[i] = static_cast<uint8_t>(next_bits(state));
      for (int64_t g = 0; g < groups; ++g) {
        const double scale = deviation * (0.5 + uniform(next_bits(state)));
        matrix.scales[static_cast<size_t>(row * groups + g)] = f32_to_f16(static_cast<float>(scale));
      }
    }
  });
  return matrix;
}

RandomMatrix random_matrix(const Format& format, int64_t rows, int64_t cols, double deviation, uint64_t seed,
                           int threads) {
  RandomMatrix random{{&format, rows, cols, {}}, {}};
  if (format.additive != nullptr) {
    random.parts = additive_parts(*format.additive,
                                  random_additive(format.additive->shape, rows, cols, deviation, seed, 0, threads));
    for (size_t i = 0; i < random.parts.size(); ++i) random.matrix.parts[i] = random.parts[i].data();
    return random;
  }
  const RandomBlocks blocks(format, deviation, seed, threads);
  const int64_t row_bytes = format.row_bytes(cols);
  random.parts[0].resize(static_cast<size_t>(rows * row_bytes));
  random.matrix.parts[0] = random.parts[0].data();
  parallel_for(threads, rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) blocks.fill_row(0, row, cols, random.parts[0].data() + row * row_bytes);
  });
  return random;
}

}  // namespace octalane::cli
