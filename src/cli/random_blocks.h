// Random numbers that are the same on every machine, and random weights made at the speed of copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "formats/format.h"

namespace octalane::cli {

/// Standard normal numbers by the Box-Muller transform.
class Gaussian {
 public:
  explicit Gaussian(uint64_t seed) : random_(seed) {}
  double next();
  void fill(std::span<float> out, double deviation);

 private:
  std::mt19937_64 random_;
  double kept_ = 0;
  bool has_kept_ = false;
};

/// Rows of random weights in a format's own blocks. kPool blocks of Gaussian values are quantized once; each block of
/// each row is a copy of one of them, drawn by a generator that is seeded with (seed, stream, row) alone. So rows
/// differ, and a row's bytes do not depend on which thread made it.
class RandomBlocks {
 public:
  static constexpr int kPool = 4096;

  /// Precondition: format.from_float != nullptr.
  RandomBlocks(const Format& format, double deviation, uint64_t seed, int threads);

  const Format& format() const { return *format_; }
  /// format.row_bytes(cols) bytes. Precondition: cols is a multiple of the format's block.
  void fill_row(uint64_t stream, int64_t row, int64_t cols, std::byte* out) const;

 private:
  const Format* format_;
  uint64_t seed_;
  int64_t unit_cols_, unit_bytes_;
  std::vector<std::byte> pool_;
};

/// Random codes, codewords whose sums have unit variance, and scales around `deviation`, all of the same sign. A row
/// depends on (seed, stream, row) alone. Precondition: cols is a multiple of 32.
AdditiveMatrix random_additive(const AdditiveShape& shape, int64_t rows, int64_t cols, double deviation, uint64_t seed,
                               uint64_t stream, int threads);

/// A matrix and the bytes that it refers to.
struct RandomMatrix {
  StoredMatrix matrix;
  std::array<std::vector<std::byte>, kMaxParts> parts;
};

/// Gaussian weights, quantized by blocks, or random codes of codebooks, of about this standard deviation.
RandomMatrix random_matrix(const Format& format, int64_t rows, int64_t cols, double deviation, uint64_t seed,
                           int threads);

}  // namespace octalane::cli
