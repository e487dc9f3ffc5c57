// Planes: what every format decodes to. One code per byte, scales as fp32 or small integers, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/code_spec.h"

namespace octalane {

/// One row of planes, written by a format and read by packing and by the reference decoder. Pointers that the
/// WeightSpec gives no meaning are null. K = columns of the row.
struct PlaneRow {
  uint8_t* codes = nullptr;       ///< [K], !is_float()
  std::byte* elements = nullptr;  ///< [K] raw little-endian floats of code.bits, is_float()
  float* scale = nullptr;         ///< flat: [K / group]; nested: [K / super]
  float* bias = nullptr;          ///< as scale, when has_bias
  int8_t* sub_scale = nullptr;    ///< nested: [K / group]
  int8_t* sub_min = nullptr;      ///< nested and has_bias: [K / group]
};

/// Owns `rows` rows of planes.
class Planes {
 public:
  /// Precondition: cols is a multiple of the spec's group and super sizes.
  Planes(const WeightSpec& spec, int64_t rows, int64_t cols);

  const WeightSpec& spec() const { return spec_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  PlaneRow row(int64_t r);
  /// Reads only; the pointers are mutable for PlaneRow's sake.
  PlaneRow row(int64_t r) const { return const_cast<Planes*>(this)->row(r); }

 private:
  WeightSpec spec_;
  int64_t rows_, cols_, scales_, groups_;
  std::vector<uint8_t> codes_;
  std::vector<std::byte> elements_;
  std::vector<float> scale_, bias_;
  std::vector<int8_t> sub_scale_, sub_min_;
};

/// The reference weights: out[K] fp32, evaluated exactly as ScaleSpec states, each operation rounded once.
/// Bit-exact with the definition of every format whose to_planes fills the row.
void decode_row(const WeightSpec& spec, const PlaneRow& row, int64_t cols, float* out);

}  // namespace octalane
