#include "weights/restage.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  explicit Row(const PackedView& weights)
      : weights_(weights), planes_(weights.spec, 1, weights.cols), decoded_(static_cast<size_t>(weights.cols)) {}

  void read(int64_t n) {
    unpack_row(weights_, n, planes_.row(0));
    decode_row(weights_.spec, planes_.row(0), weights_.cols, decoded_.data());
  }
  float decoded(int64_t c) const { return decoded_[static_cast<size_t>(c)]; }

  float unit_scale(int64_t begin, int64_t end) const {
    float amax = 0;
    for (int64_t c = begin; c < end; ++c) {
      if (!std::isfinite(decoded(c))) return std::numeric_limits<float>::quiet_NaN();
      amax = std::max(amax, std::fabs(decoded(c)));
    }
    const float s8 = amax / 127.0f;
    return std::isfinite(restage_factor(s8)) ? s8 : 0.0f;
  }

  int8_t staged(int64_t c, float s8) const {
    const ScaleSpec& s = weights_.spec.scale;
    const PlaneRow p = planes_.row(0);
    const int64_t group = c / s.group, at = s.nested() ? c / s.super : group;
    float scale = p.scale[at], bias = s.has_bias ? p.bias[at] : 0.0f;
    if (s.nested()) {
      scale *= static_cast<float>(p.sub_scale[group]);
      if (s.has_bias) bias = -(bias * static_cast<float>(p.sub_min[group]));
    }
    const float factor = restage_factor(s8);
    return restage_code(weights_.spec.code.level(p.codes[c]), restage_fixed(scale, factor),
                        restage_fixed(bias, factor));
  }

 private:
  const PackedView& weights_;
  const Planes planes_;
  std::vector<float> decoded_;
};

int64_t unit_columns(int64_t units, int64_t cols) { return units == 1 ? cols : kRestageBlock; }

float& scale_of(const Restaged& r, int rows, int64_t n, int64_t unit) {
  return r.scales[(n / rows * r.units + unit) * rows + n % rows];
}

}  // namespace

Restaged restage(const PackedView& weights, StagedType type, int threads) {
  const int rows = weights.order.rows;
  Restaged out;
  out.units = restaged_by_row(type) ? 1 : (weights.cols + kRestageBlock - 1) / kRestageBlock;
  out.scales = AlignedBuffer<float>(weights.tiles * out.units * rows);
  std::fill_n(out.scales.data(), out.scales.size(), 0.0f);
  // Sums of squares by tile, added in order: the same for any number of threads.
  std::vector<double> errors(static_cast<size_t>(weights.tiles)), squares(errors);
  parallel_for(threads, weights.tiles, 1, [&](int, int64_t begin, int64_t end) {
    Row row(weights);
    for (int64_t n = begin * rows; n < std::min(weights.rows, end * rows); ++n) {
      row.read(n);
      for (int64_t unit = 0; unit < out.units; ++unit) {
        const int64_t first = unit * unit_columns(out.units, weights.cols);
        const int64_t last = std::min(weights.cols, first + unit_columns(out.units, weights.cols));
        const float s8 = scale_of(out, rows, n, unit) = row.unit_scale(first, last);
        for (int64_t c = first; c < last; ++c) {
          const double w = row.decoded(c), error = double{s8} * row.staged(c, s8) - w;
          errors[static_cast<size_t>(n / rows)] += error * error;
          squares[static_cast<size_t>(n / rows)] += w * w;
        }
      }
    }
  });
  double error = 0, square = 0;
  for (size_t tile = 0; tile < errors.size(); ++tile) {
    error += errors[tile];
    square += squares[tile];
  }
  out.relative_error = std::sqrt(square > 0 ? error / square : error);
  return out;
}

void restaged_row(const PackedView& weights, const Restaged& restaged, int64_t row, double* out) {
  Row reader(weights);
  reader.read(row);
  for (int64_t c = 0; c < weights.cols; ++c) {
    const float s8 = scale_of(restaged, weights.order.rows, row, c / unit_columns(restaged.units, weights.cols));
    out[c] = double{s8} * reader.staged(c, s8);
  }
}

}  // namespace octalane
