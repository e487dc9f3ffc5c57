// Planes: what every format decodes to. One code per byte, scales as fp32 or small integers, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/code_spec.h"

namespace octalane {

/// One row of planes, written by a format and read by packing and by the reference decoder. Pointers that the
/// WeightSpec gives no meaning are null. K = columns of the row.
struct PlaneRow {
  uint8_t* codes = nullptr;          ///< [K], !is_float(); codebooks: [K / vector][books]
  std::byte* elements = nullptr;     ///< [K] raw little-endian floats of code.bits, is_float()
  float* scale = nullptr;            ///< flat: [ceil(K / group)]; nested: [K / super]
  float* bias = nullptr;             ///< as scale, when has_bias
  int8_t* sub_scale = nullptr;       ///< nested: [K / group]
  int8_t* sub_min = nullptr;         ///< nested and has_bias: [K / group]
  const float* codebooks = nullptr;  ///< [books][kCodewords][vector] of the matrix; not the row's to fill
};

/// Owns `rows` rows of planes.
class Planes {
 public:
  /// Precondition: cols is a multiple of the spec's group and super sizes (codebooks: of 32).
  /// codebooks: of a spec that has them, as PlaneRow's; must outlive the planes.
  Planes(const WeightSpec& spec, int64_t rows, int64_t cols, const float* codebooks = nullptr);

  const WeightSpec& spec() const { return spec_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t codes_per_row() const { return code_stride_; }
  int64_t scales_per_row() const { return scales_; }
  std::span<const float> codebook_values() const {
    return {codebooks_, codebooks_ == nullptr ? 0 : spec_.code.codebook_values()};
  }
  PlaneRow row(int64_t r);
  /// Reads only; the pointers are mutable for PlaneRow's sake.
  PlaneRow row(int64_t r) const { return const_cast<Planes*>(this)->row(r); }

 private:
  WeightSpec spec_;
  const float* codebooks_;
  int64_t rows_, cols_, code_stride_, scales_, groups_;
  std::vector<uint8_t> codes_;
  std::vector<std::byte> elements_;
  std::vector<float> scale_, bias_;
  std::vector<int8_t> sub_scale_, sub_min_;
};

/// The reference weights: out[K] fp32, evaluated exactly as ScaleSpec states, each operation rounded once.
/// Bit-exact with the definition of every format whose to_planes fills the row.
void decode_row(const WeightSpec& spec, const PlaneRow& row, int64_t cols, float* out);

}  // namespace octalane
