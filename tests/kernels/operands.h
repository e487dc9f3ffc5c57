// Weights and activations of the kernel tests: made from a seed, packed, poisoned where a kernel must not look.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/activations_view.h"
#include "core/aligned_buffer.h"
#include "core/planes.h"
#include "kernels/kernel.h"
#include "weights/pack.h"

namespace octalane::test {

struct NamedSpec {
  std::string name;
  WeightSpec spec;
};

/// Every kind of weight that a format of this project has, and affine ones with bfloat16 and fp32 scales.
const std::vector<NamedSpec>& all_specs();

/// The columns that a row of these weights comes in multiples of.
int64_t column_unit(const WeightSpec& spec);

/// Random codes, and scales of both signs that keep weights near 1; floats are normal numbers.
Planes random_planes(const WeightSpec& spec, int64_t rows, int64_t cols, uint32_t seed);

/// Row-major fp32 weights, as core/planes.h defines them.
std::vector<float> decode(const Planes& planes);

/// Packed weights whose bytes a test may change. Rows past N are poisoned: codes of ones and NaN scales.
class Packed {
 public:
  Packed(const Planes& planes, TileOrder order);
  const PackedView& view() const { return view_; }
  std::byte* bytes(int64_t tile, int64_t record) {
    return data_.data() + (tile * view_.records + record) * view_.record.bytes;
  }

 private:
  void poison_rows_past_the_end();
  PackedWeights packed_;
  AlignedBuffer<std::byte> data_;
  PackedView view_;
};

/// fp32 activations with rows `stride` apart; the gap between rows is NaN.
class Activations {
 public:
  Activations(int64_t rows, int64_t cols, int64_t gap);
  static Activations random(int64_t rows, int64_t cols, uint32_t seed);
  MatrixView<const float> view() const { return {data_.data(), rows_, cols_, cols_ + gap_, 1}; }
  float& at(int64_t m, int64_t k) { return data_[static_cast<size_t>(m * (cols_ + gap_) + k)]; }
  float at(int64_t m, int64_t k) const { return data_[static_cast<size_t>(m * (cols_ + gap_) + k)]; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 private:
  int64_t rows_, cols_, gap_;
  std::vector<float> data_;
};

/// Activations in a kernel's form. Columns past w.padded_cols() (tiled forms: past the step that holds the last) are
/// poisoned: no kernel may read them. Tokens that pad the last strip of a tiled form are zeros.
class Formed {
 public:
  Formed(const Quantizer& quantizer, ActivationGroups groups, MatrixView<const float> x, int64_t padded_cols);
  ActivationsView view() const { return view_; }
  /// The first `rows` rows.
  ActivationsView head(int64_t rows) const;
  /// What the kernel multiplies, in fp64: the bfloat16 value, or scale times code.
  double value(int64_t m, int64_t k) const;
  /// The code of column k of token m (forms of codes).
  int8_t code(int64_t m, int64_t k) const;
  /// The activation scale that column k of token m has (forms of codes).
  double scale(int64_t m, int64_t k) const;

 private:
  AlignedBuffer<float> f32_, scales_;
  AlignedBuffer<uint16_t> bf16_;
  AlignedBuffer<int8_t> codes_;
  AlignedBuffer<int32_t> sums_;
  ActivationsView view_;
};

/// Outputs with a canary around every row, NaN where a kernel has yet to write.
class Outputs {
 public:
  Outputs(int64_t rows, int64_t cols, int64_t gap);
  MatrixView<float> view() { return {data_.data() + gap_, rows_, cols_, cols_ + gap_, 1}; }
  float at(int64_t m, int64_t n) const { return data_[static_cast<size_t>(gap_ + m * (cols_ + gap_) + n)]; }
  bool canaries_intact() const;

 private:
  int64_t rows_, cols_, gap_;
  std::vector<float> data_;
};

/// The scales of re-encoded weights that the kernel asks for; empty when it asks for none.
std::vector<float> restage_for(const Kernel& kernel, const PackedView& w);

/// Runs the kernel over all tiles, in parts of 1 2 3 ... tiles that together make all, last part first.
void run_in_parts(const Kernel& kernel, const PackedView& w, const ActivationsView& x, MatrixView<float> y,
                  const std::vector<float>& restage);

Problem problem_of(const Kernel& kernel, const PackedView& w, int64_t tokens);

/// Equal bits, or both NaN.
bool same_bits(float a, float b);

}  // namespace octalane::test
