#include "weights/restage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/planes.h"
#include "core/restage.h"
#include "weights/pack.h"

namespace octalane {
namespace {

/// One row: planes, decoded weights, and the scale and bias in effect for a group.
class Row {
 public:
  Row(const PackedView& weights, StagedType type)
      : weights_(weights),
        type_(type),
        planes_(weights.spec, 1, weights.cols),
        decoded_(static_cast<size_t>(weights.cols)) {}

  void read(int64_t n) {
    unpack_row(weights_, n, planes_.row(0));
    decode_row(weights_.spec, planes_.row(0), weights_.cols, decoded_.data());
  }
  float decoded(int64_t c) const { return decoded_[static_cast<size_t>(c)]; }

  /// The scale of the unit of columns [begin, end).
  float unit_scale(int64_t begin, int64_t end) const {
    float amax = 0;
    for (int64_t c = begin; c < end; ++c) {
      if (!std::isfinite(decoded(c))) return std::numeric_limits<float>::quiet_NaN();
      amax = std::max(amax, std::fabs(decoded(c)));
    }
    if (type_ == StagedType::f8_row) return group_scales().largest * e4m3_unit_of_scale(weights_.spec.code);
    const float s8 = amax / 127.0f;
    return std::isfinite(restage_factor(s8)) ? s8 : 0.0f;
  }

  /// Column c as it is multiplied, in fp64.
  double staged(int64_t c, float unit) const {
    const CodeSpec& code = weights_.spec.code;
    const auto [scale, bias] = in_effect(c);
    const uint8_t bits = planes_.row(0).codes[c];
    if (type_ == StagedType::f8_row) {
      const float level = code.map == CodeMap::e4m3 ? e4m3_to_f32(bits) : static_cast<float>(code.level(bits));
      return double{unit} * e4m3_to_f32(restage_e4m3(level, scale, unit));
    }
    const float factor = restage_factor(unit);
    return double{unit} * restage_code(code.level(bits), restage_fixed(scale, factor), restage_fixed(bias, factor));
  }

  /// See Restaged::same_sign_groups; `begin` is a group's first column, in a unit whose scale is s8.
  bool shares_a_far_sign(int64_t begin, float s8) const {
    const auto first = decoded_.begin() + begin;
    const auto [least, most] = std::minmax_element(first, first + weights_.spec.scale.group);
    if (*least <= 0 && *most >= 0) return false;
    const float largest = std::max(std::fabs(*least), std::fabs(*most));
    return largest > 2.54f * (*most - *least) && largest >= 127.0f / 4 * s8;
  }

  /// The extreme scales of the groups that hold anything but zeros; 0 when there are none.
  struct Extremes {
    float least = 0, largest = 0;
    int spread() const { return least > 0 ? std::ilogb(largest) - std::ilogb(least) : 0; }
  };
  Extremes group_scales() const {
    Extremes found;
    const int group = weights_.spec.scale.group;
    for (int64_t begin = 0; begin < weights_.cols; begin += group) {
      const auto first = decoded_.begin() + begin;
      if (std::all_of(first, first + group, [](float w) { return w == 0; })) continue;
      const float scale = in_effect(begin).first;
      found = {found.least > 0 ? std::min(found.least, scale) : scale, std::max(found.largest, scale)};
    }
    return found;
  }

 private:
  /// The scale and bias in effect for column c.
  std::pair<float, float> in_effect(int64_t c) const {
    const ScaleSpec& s = weights_.spec.scale;
    const PlaneRow p = planes_.row(0);
    const int64_t group = c / s.group, at = s.nested() ? c / s.super : group;
    float scale = p.scale[at], bias = s.has_bias ? p.bias[at] : 0.0f;
    if (s.nested()) {
      scale *= static_cast<float>(p.sub_scale[group]);
      if (s.has_bias) bias = -(bias * static_cast<float>(p.sub_min[group]));
    }
    return {scale, bias};
  }

  const PackedView& weights_;
  const StagedType type_;
  const Planes planes_;
  std::vector<float> decoded_;
};

int64_t unit_columns(int64_t units, int64_t cols) { return units == 1 ? cols : kRestageBlock; }

float& scale_of(const Restaged& r, int rows, int64_t n, int64_t unit) {
  return r.scales[(n / rows * r.units + unit) * rows + n % rows];
}

/// What re-encoding cost one tile.
struct Cost {
  double error = 0, square = 0;
  int64_t same_sign_groups = 0, inexact_weights = 0;
  int spread = 0;

  void add_unit(const Row& row, int64_t first, int64_t last, float unit) {
    for (int64_t c = first; c < last; ++c) {
      const double w = row.decoded(c), difference = row.staged(c, unit) - w;
      error += difference * difference;
      square += w * w;
      if (difference != 0) ++inexact_weights;
    }
  }
  void add(const Cost& other) {
    error += other.error;
    square += other.square;
    same_sign_groups += other.same_sign_groups;
    inexact_weights += other.inexact_weights;
    spread = std::max(spread, other.spread);
  }
};

}  // namespace

Restaged restage(const PackedView& weights, StagedType type, int threads) {
  const int rows = weights.order.rows;
  const bool f8 = type == StagedType::f8_row;
  Restaged out;
  out.type = type;
  out.units = restaged_by_row(type) ? 1 : (weights.cols + kRestageBlock - 1) / kRestageBlock;
  out.scales = AlignedBuffer<float>(weights.tiles * out.units * rows);
  std::fill_n(out.scales.data(), out.scales.size(), 0.0f);
  // Sums by tile, added in order: the same for any number of threads.
  std::vector<Cost> costs(static_cast<size_t>(weights.tiles));
  parallel_for(threads, weights.tiles, 1, [&](int, int64_t begin, int64_t end) {
    Row row(weights, type);
    for (int64_t n = begin * rows; n < std::min(weights.rows, end * rows); ++n) {
      Cost& cost = costs[static_cast<size_t>(n / rows)];
      row.read(n);
      if (f8) cost.spread = std::max(cost.spread, row.group_scales().spread());
      for (int64_t unit = 0; unit < out.units; ++unit) {
        const int64_t first = unit * unit_columns(out.units, weights.cols);
        const int64_t last = std::min(weights.cols, first + unit_columns(out.units, weights.cols));
        const float scale = scale_of(out, rows, n, unit) = row.unit_scale(first, last);
        cost.add_unit(row, first, last, scale);
        for (int64_t c = first; c < last && !f8; c += weights.spec.scale.group) {
          if (row.shares_a_far_sign(c, scale)) ++cost.same_sign_groups;
        }
      }
    }
  });
  Cost total;
  for (const Cost& cost : costs) total.add(cost);
  out.relative_error = std::sqrt(total.square > 0 ? total.error / total.square : total.error);
  out.same_sign_groups = total.same_sign_groups;
  out.inexact_weights = f8 ? total.inexact_weights : 0;
  out.spread = total.spread;
  return out;
}

std::string why_unfit(const WeightSpec& spec, const Restaged& restaged) {
  if (restaged.same_sign_groups > 0) {
    return fmt::format("{} groups of weights share a sign far from zero and would lose more than 1 % of their range",
                       restaged.same_sign_groups);
  }
  if (restaged.type == StagedType::f8_row && spec.code.map == CodeMap::table && restaged.inexact_weights > 0) {
    return fmt::format("{} weights do not move exactly to one power of two per row: scales of a row are 2^{} apart",
                       restaged.inexact_weights, restaged.spread);
  }
  return {};
}

void restaged_row(const PackedView& weights, const Restaged& restaged, int64_t row, double* out) {
  Row reader(weights, restaged.type);
  reader.read(row);
  for (int64_t c = 0; c < weights.cols; ++c) {
    out[c] =
        reader.staged(c, scale_of(restaged, weights.order.rows, row, c / unit_columns(restaged.units, weights.cols)));
  }
}

}  // namespace octalane
