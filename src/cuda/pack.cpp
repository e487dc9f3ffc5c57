#include "cuda/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/half.h"
#include "core/parallel.h"
#include "core/planes.h"
#include "core/restage.h"
#include "weights/pack.h"

namespace octalane::cuda {
namespace {

bool re_encodes_int8(StagedType t) { return restaged(t) && t != StagedType::f8_row; }

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

ScaleWords exact_words(const ScaleSpec& scale) {
  if (scale.nested()) return ScaleWords::nested;
  if (scale.type == ScaleType::f16) return scale.has_bias ? ScaleWords::pair_f16 : ScaleWords::single_f16;
  return scale.has_bias ? ScaleWords::pair_bf16 : ScaleWords::single_bf16;
}

ScaleWords words_for(const WeightSpec& spec, StagedType staged, const Restaged* restaged) {
  if (re_encodes_int8(staged)) return ScaleWords::staged;
  if (staged != StagedType::f8_row) return exact_words(spec.scale);
  return restaged == nullptr || restaged->spread <= kMostExponentSpread ? ScaleWords::exponent : ScaleWords::shift;
}

Code code_for(const CodeSpec& code) {
  if (code.map == CodeMap::table) return Code::table;
  if (code.map == CodeMap::e4m3) return Code::e4m3;
  return code.bits <= 4 ? Code::nibble : Code::byte;
}

/// Tables whose upper half is the lower with the sign turned, as E2M1's: f8.row looks up magnitudes.
bool is_sign_magnitude(const std::array<int8_t, 16>& table) {
  for (size_t i = 0; i < 8; ++i) {
    if (table[i] < 0 || table[i + 8] != -table[i]) return false;
  }
  return true;
}

bool is_e4m3(const std::array<int8_t, 16>& table) {
  return std::ranges::all_of(table, [](int8_t level) { return e4m3_to_f32(f32_to_e4m3(level)) == level; });
}

/// The rows of a matrix, one after another, as records want them.
class Packer {
 public:
  Packer(const PackedView& weights, const Restaged* restaged, Records& out)
      : weights_(weights), restaged_(restaged), out_(out), planes_(weights.spec, 1, weights.cols) {}

  /// False when a level does not fit.
  bool row(int64_t n) {
    unpack_row(weights_, n, planes_.row(0));
    bool fits = true;
    for (int64_t begin = 0; begin < weights_.cols; begin += kRecordCols) fits &= record(n, begin);
    if (out_.scales == ScaleWords::nested) supers(n);
    if (restaged_ != nullptr) {
      for (int64_t u = 0; u < restaged_->units; ++u) out_.unit_scales[size_t(u * out_.padded_rows + n)] = unit(n, u);
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
    return out_.bytes.data() + (n / kRecordRows * records + column / kRecordCols) * out_.layout.bytes;
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
      out_.supers[size_t((n / kRecordRows * count + g) * kRecordRows + n % kRecordRows)] = pair;
    }
  }

  const PackedView& weights_;
  const Restaged* restaged_;
  Records& out_;
  Planes planes_;
};

void set_levels(const CodeSpec& code, Records& out) {
  out.zero = code.map == CodeMap::table ? 128 : code.zero;
  // Where weights of a group are of both signs: its value is within the block's largest.
  out.pivot = code.map == CodeMap::table ? 128 : 1 << (code.bits - 1);
  if (code.map != CodeMap::table) return;
  for (size_t i = 0; i < 16; ++i) out.table[i] = static_cast<uint8_t>(code.table[i] + 128);
  if (out.staged != StagedType::f8_row) return;
  for (int k = 0; k < kShifts; ++k) {
    const float unit = std::ldexp(e4m3_unit_of_scale(code), k);  // of the levels, for scale 1
    for (size_t i = 0; i < 8; ++i) {
      out.shifted[size_t(k)] |= uint64_t{restage_e4m3(code.table[i], 1.0f, unit)} << 8 * i;
    }
  }
}

int64_t count_supers(const Records& records) {
  if (records.scales != ScaleWords::nested) return 0;
  return records.padded_rows * ((records.padded_cols / kPanelCols + 1) / 2);
}

int64_t count_bytes(const Records& records) {
  return records.padded_rows / kRecordRows * (records.padded_cols / kRecordCols) * records.layout.bytes;
}

}  // namespace

int64_t read_bytes(const Records& records) { return count_bytes(records) + count_supers(records) * 4; }

std::string why_no_records(const WeightSpec& spec, StagedType staged) {
  const CodeSpec& code = spec.code;
  const ScaleSpec& scale = spec.scale;
  if (code.is_float()) return "weights without a scale are not served";
  const bool e4m3 = code.map == CodeMap::e4m3;
  if (!code.has_integer_levels() && !(e4m3 && (staged == StagedType::bf16 || info(staged).lane == Lane::f8))) {
    return "levels that are no integers are not served";
  }
  if (scale.nested() && (scale.type != ScaleType::f16 || scale.super != kSuperCols)) {
    return fmt::format("nested scales must be f16 over {} columns", kSuperCols);
  }
  if (scale.type == ScaleType::f32 && !restaged(staged)) return "scales of 32 bits are not served exactly";
  switch (staged) {
    case StagedType::bf16: return {};
    case StagedType::s8_group:
      if (scale.group < 32) return "groups of 16 are half an instruction";
      if (code.map == CodeMap::offset && (1 << code.bits) - code.zero > 128) return "levels go beyond int8";
      return {};
    case StagedType::s8_nested:
      if (!scale.nested()) return "scales are not nested";
      if (scale.group < 32) return "groups of 16 are half an instruction";
      return code.map == CodeMap::offset && (1 << code.bits) - code.zero > 128 ? "levels go beyond int8" : "";
    case StagedType::s8_row:
    case StagedType::s8_xblock:
    case StagedType::s8_block:
      if (code.bits == 8) return "codes of 8 bits are not re-encoded";
      return scale.group < 32 ? "groups of 16 are not re-encoded here" : "";
    case StagedType::f8_group:
      if (code.map == CodeMap::offset) return "levels are integers, not E4M3";
      if (code.map == CodeMap::table && !is_e4m3(code.table)) return "levels are not all E4M3";
      if (scale.has_bias) return "E4M3 has no bias";
      return scale.group < 32 ? "groups of 16 are half an instruction" : "";
    case StagedType::f8_row:
      if (e4m3) return "E4M3 codes are not re-encoded here, use f8.group";
      if (code.map != CodeMap::table || !is_sign_magnitude(code.table)) return "wanted a table of signed magnitudes";
      if (!scale.are_powers_of_two() || scale.has_bias) return "wanted scales that are powers of two, and no bias";
      return scale.group < 32 ? "groups of 16 are not served" : "";
    default: return fmt::format("{} has no kernel for CUDA", name(staged));
  }
}

Expected<Records> describe_records(const WeightSpec& spec, int64_t rows, int64_t cols, StagedType staged,
                                   const Restaged* restaged) {
  if (const std::string why = why_no_records(spec, staged); !why.empty())
    return fail("cuda: {}: {}", name(staged), why);
  Records out;
  out.spec = spec;
  out.staged = staged;
  out.code = code_for(spec.code);
  out.scales = words_for(spec, staged, restaged);
  out.group = spec.scale.group;
  out.rows = rows, out.cols = cols;
  out.padded_rows = padded(rows, kPanelRows), out.padded_cols = padded(cols, kPanelCols);
  out.layout = record_layout(code_bits(out.code), out.group, out.scales);
  set_levels(spec.code, out);
  return out;
}

Expected<Records> pack_records(const PackedView& weights, StagedType staged, const Restaged* restaged, int threads) {
  Expected<Records> described = describe_records(weights.spec, weights.rows, weights.cols, staged, restaged);
  if (!described) return described;
  Records& out = *described;
  out.bytes.resize(static_cast<size_t>(count_bytes(out)));
  out.supers.resize(static_cast<size_t>(count_supers(out)));
  if (restaged != nullptr) out.unit_scales.resize(static_cast<size_t>(restaged->units * out.padded_rows));
  std::atomic<int64_t> unfit{-1};
  parallel_for(threads, (weights.rows + kRecordRows - 1) / kRecordRows, 1, [&](int, int64_t begin, int64_t end) {
    Packer packer(weights, restaged, out);
    for (int64_t n = begin * kRecordRows; n < std::min(weights.rows, end * kRecordRows); ++n) {
      if (!packer.row(n)) unfit = n;
    }
  });
  if (unfit >= 0)
    return fail("cuda: {}: row {}: a group's scale goes far beyond its codes", name(staged), unfit.load());
  return described;
}

}  // namespace octalane::cuda
