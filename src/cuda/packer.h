// From the rows of packed weights to records: the bytes of cuda/records.h, one row at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/half.h"
#include "core/planes.h"
#include "core/restage.h"
#include "cuda/pack.h"
#include "weights/pack.h"

namespace octalane::cuda {

/// The rows of a matrix, one after another, as records from row `first` on want them.
class Packer {
 public:
  Packer(const PackedView& weights, const Restaged* restaged, int64_t first, Records& out)
      : weights_(weights), restaged_(restaged), first_(first), out_(out), planes_(weights.spec, 1, weights.cols) {}

  /// False when a level does not fit.
  bool row(int64_t n) {
    unpack_row(weights_, n, planes_.row(0));
    bool fits = true;
    for (int64_t begin = 0; begin < weights_.cols; begin += kRecordCols) fits &= record(n, begin);
    if (out_.scales == ScaleWords::nested) supers(n);
    if (restaged_ != nullptr) {
      for (int64_t u = 0; u < restaged_->units; ++u)
        out_.unit_scales[size_t(u * out_.padded_rows + first_ + n)] = unit(n, u);
    }
    return fits;
  }

 private:
  float unit(int64_t n, int64_t u) const {
    const int rows = weights_.order.rows;
    return restaged_->scales[(n / rows * restaged_->units + u) * rows + n % rows];
  }

  std::byte* at(int64_t n, int64_t column) const {
    const int64_t records = out_.padded_cols / kRecordCols;
    return out_.bytes.data() + ((first_ + n) / kRecordRows * records + column / kRecordCols) * out_.layout.bytes;
  }

  bool record(int64_t n, int64_t begin) {
    std::byte* const to = at(n, begin);
    const auto row = static_cast<int>(n % kRecordRows);
    const int64_t cols = std::min<int64_t>(kRecordCols, weights_.cols - begin);
    for (int c = 0; c < cols; ++c) code(to, row, c, planes_.row(0).codes[begin + c]);
    bool fits = true;
    const int width = out_.layout.word_bytes;
    for (int w = 0; w < out_.layout.words; ++w) {
      const int64_t column = begin + int64_t{w} * (kRecordCols / out_.layout.words);
      if (column >= weights_.cols) break;
      uint32_t word = 0;
      fits &= scale_word(n, column, word);
      std::memcpy(to + out_.layout.code_bytes + (row * out_.layout.words + w) * width, &word, size_t(width));
    }
    return fits;
  }

  void code(std::byte* record, int row, int col, uint8_t value) const {
    const int h = row % 16 / 8, j = col / 32, q = col % 32 / 16, e = col % 4;
    const int thread = row / 16 * 32 + row % 8 * 4 + col % 16 / 4;
    if (code_bits(out_.code) == 8) {
      record[j * 2048 + thread * 16 + h * 8 + q * 4 + e] = static_cast<std::byte>(value);
      return;
    }
    std::byte* const word = record + thread * 16 + j * 8 + h * 4;
    const int nibble = out_.code == Code::table ? 4 * q + e : 2 * e + q;
    if (out_.staged == StagedType::f8_row) {
      word[nibble / 2] |= static_cast<std::byte>((value & 7) << nibble % 2 * 4);
      word[e] |= static_cast<std::byte>((value & 8) << (q == 0 ? 4 : 0));
    } else {
      word[nibble / 2] |= static_cast<std::byte>(value << nibble % 2 * 4);
    }
  }

  struct InEffect {
    float scale, bias;
  };
  InEffect in_effect(int64_t column) const {
    const ScaleSpec& s = weights_.spec.scale;
    const PlaneRow p = planes_.row(0);
    const int64_t group = column / s.group, index = s.nested() ? column / s.super : group;
    InEffect found{p.scale[index], s.has_bias ? p.bias[index] : 0.0f};
    if (s.nested()) {
      found.scale *= static_cast<float>(p.sub_scale[group]);
      if (s.has_bias) found.bias = -(found.bias * static_cast<float>(p.sub_min[group]));
    }
    return found;
  }

  bool scale_word(int64_t n, int64_t column, uint32_t& word) const {
    const ScaleSpec& s = weights_.spec.scale;
    const PlaneRow p = planes_.row(0);
    const int64_t group = column / s.group;
    switch (out_.scales) {
      case ScaleWords::staged: return staged_word(n, column, word);
      // Groups of zeros may lie further down; any word serves them.
      case ScaleWords::exponent:
        word = kMostExponentSpread + 1 -
               std::min<uint32_t>(kMostExponentSpread, shift(unit(n, 0), in_effect(column).scale));
        break;
      case ScaleWords::shift: word = 8 * shift(unit(n, 0), in_effect(column).scale); break;
      case ScaleWords::nested:
        word = static_cast<uint8_t>(p.sub_scale[group]);
        if (s.has_bias) word |= uint32_t{static_cast<uint8_t>(p.sub_min[group])} << 8;
        break;
      case ScaleWords::pair_f16:
      case ScaleWords::single_f16:
        word = f32_to_f16(p.scale[group]);
        if (s.has_bias) word |= uint32_t{f32_to_f16(p.bias[group])} << 16;
        break;
      case ScaleWords::pair_bf16:
      case ScaleWords::single_bf16:
        word = f32_to_bf16(p.scale[group]);
        if (s.has_bias) word |= uint32_t{f32_to_bf16(p.bias[group])} << 16;
        break;
    }
    return true;
  }

  bool staged_word(int64_t n, int64_t column, uint32_t& word) const {
    const InEffect effect = in_effect(column);
    const int64_t u = restaged_->units == 1 ? 0 : column / kRestageBlock;
    const float factor = restage_factor(unit(n, u));
    const int scale = restage_fixed(effect.scale, factor), bias = restage_fixed(effect.bias, factor);
    const CodeSpec& code = weights_.spec.code;
    const int64_t end = std::min(weights_.cols, column + kRecordCols / out_.layout.words);
    const int pivot = out_.pivot - out_.zero;  // its level
    const auto lifted = static_cast<uint16_t>(0x8000 + 128 + bias + scale * pivot);
    for (int64_t c = column; c < end; ++c) {
      const int lane = lifted + scale * (code.level(planes_.row(0).codes[c]) - pivot);
      if (lane < 0 || lane > UINT16_MAX) return false;
    }
    word = static_cast<uint16_t>(scale) | uint32_t{lifted} << 16;
    return true;
  }

  /// Powers of two from the row's largest scale down to this one.
  uint32_t shift(float unit, float scale) const {
    const float largest = unit / e4m3_unit_of_scale(weights_.spec.code);
    if (!(unit > 0) || !(scale > 0)) return kShifts - 1;
    return static_cast<uint32_t>(std::clamp(std::ilogb(largest) - std::ilogb(scale), 0, kShifts - 1));
  }

  void supers(int64_t n) {
    const PlaneRow p = planes_.row(0);
    const int64_t count = (out_.padded_cols / kPanelCols + 1) / 2;
    for (int64_t g = 0; g < weights_.cols / kSuperCols; ++g) {
      uint32_t pair = f32_to_f16(p.scale[g]);
      if (weights_.spec.scale.has_bias) pair |= uint32_t{f32_to_f16(p.bias[g])} << 16;
      out_.supers[size_t(((first_ + n) / kRecordRows * count + g) * kRecordRows + n % kRecordRows)] = pair;
    }
  }

  const PackedView& weights_;
  const Restaged* restaged_;
  int64_t first_;  // a multiple of kPanelRows
  Records& out_;
  Planes planes_;
};

}  // namespace octalane::cuda
