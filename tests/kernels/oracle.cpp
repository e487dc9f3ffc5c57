#include "kernels/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/restage.h"

namespace octalane::test {
namespace {

constexpr double kUnit = 0x1p-24;            // unit roundoff of fp32
constexpr double kSmallest = 0x1p-149;       // its smallest step
constexpr double kHigherOrder = 1.0 + 1e-3;  // products of roundoffs: below K * kUnit

/// Row-major weights as the lane multiplies them, and the magnitudes of their parts: |scale * level| + |bias|.
struct Staged {
  std::vector<double> weight, magnitude;
};

double bias_of(const WeightSpec& spec, const PlaneRow& row, int64_t column) {
  if (!spec.scale.has_bias) return 0;
  if (!spec.scale.nested()) return row.bias[column / spec.scale.group];
  return static_cast<double>(row.bias[column / spec.scale.super]) * row.sub_min[column / spec.scale.group];
}

/// The fp32 scale and bias that a column's group has in effect.
std::pair<float, float> scales_of(const WeightSpec& spec, const PlaneRow& row, int64_t column) {
  const int64_t group = column / spec.scale.group;
  const int64_t at = spec.scale.nested() ? column / spec.scale.super : group;
  float scale = row.scale[at], bias = spec.scale.has_bias ? row.bias[at] : 0.0f;
  if (spec.scale.nested()) {
    scale *= static_cast<float>(row.sub_scale[group]);
    if (spec.scale.has_bias) bias = -(bias * static_cast<float>(row.sub_min[group]));
  }
  return {scale, bias};
}

/// Re-encoded weights by the definition in core/restage.h, in arithmetic that needs no wrapping.
void restage_row(StagedType staged, const Planes& planes, int64_t n, const float* decoded, double* out) {
  const int64_t unit = staged == StagedType::s8_block ? 256 : planes.cols();
  for (int64_t begin = 0; begin < planes.cols(); begin += unit) {
    const int64_t end = std::min(planes.cols(), begin + unit);
    float amax = 0;
    for (int64_t k = begin; k < end; ++k) amax = std::max(amax, std::fabs(decoded[k]));
    const float s8 = amax / 127.0f, factor = s8 > 0 ? 256.0f / s8 : 0.0f;
    for (int64_t k = begin; k < end; ++k) {
      const auto [scale, bias] = scales_of(planes.spec(), planes.row(n), k);
      const double level = planes.spec().code.level(planes.row(n).codes[k]);
      const double sum = std::nearbyint(scale * factor) * level + std::nearbyint(bias * factor);
      out[k] = s8 * std::floor((sum + 128) / 256);
    }
  }
}

/// E4M3 re-encoding by the definition in core/restage.h, from the weights and not from their codes.
void restage_f8_row(const Planes& planes, int64_t n, const float* decoded, double* out) {
  const CodeSpec& code = planes.spec().code;
  double largest = code.map == CodeMap::e4m3 ? 448 : 0, most = 0;
  for (const int level : code.table) largest = std::max(largest, std::fabs(static_cast<double>(level)));
  for (int64_t k = 0; k < planes.cols(); ++k) {
    if (decoded[k] != 0) most = std::max(most, static_cast<double>(scales_of(planes.spec(), planes.row(n), k).first));
  }
  const double unit = most / std::exp2(std::floor(std::log2(448 / largest)));
  for (int64_t k = 0; k < planes.cols(); ++k) out[k] = unit == 0 ? 0 : unit * nearest_e4m3(decoded[k] / unit);
}

/// The largest sum of one codeword of each book over 127, by trying them all.
double unit_of_codebooks(const CodeSpec& code, const float* books) {
  double largest = 0;
  for (int i = 0; i < kCodewords; ++i) {
    for (int j = 0; j < (code.books == 2 ? kCodewords : 1); ++j) {
      for (int t = 0; t < code.vector; ++t) {
        double sum = books[i * code.vector + t];
        if (code.books == 2) sum += books[(kCodewords + j) * code.vector + t];
        largest = std::max(largest, std::fabs(sum));
      }
    }
  }
  return largest / 127;
}

/// Codebook weights of the int8 lane by the definition in core/codebook.h.
void restage_codebooks(const Planes& planes, std::vector<double>& out) {
  const CodeSpec& code = planes.spec().code;
  const double unit = unit_of_codebooks(code, planes.row(0).codebooks);
  for (int64_t n = 0; n < planes.rows(); ++n) {
    const PlaneRow row = planes.row(n);
    for (int64_t k = 0; k < planes.cols(); ++k) {
      double fixed = 64;
      for (int b = 0; b < code.books; ++b) {
        const int word = row.codes[k / code.vector * code.books + b];
        fixed += std::nearbyint(row.codebooks[(b * kCodewords + word) * code.vector + k % code.vector] * (128 / unit));
      }
      const double scale = row.scale[k / planes.spec().scale.group];
      out[static_cast<size_t>(n * planes.cols() + k)] = scale * unit * std::floor(fixed / 128);
    }
  }
}

/// Whether the weights of a lane are others than the decoded ones by more than a rounding.
bool changes_weights(StagedType staged, const WeightSpec& spec) {
  return restaged(staged) || (spec.code.is_codebook() && staged == StagedType::s8_group);
}

Staged stage(StagedType staged, const Planes& planes) {
  const std::vector<float> decoded = decode(planes);
  Staged out{std::vector<double>(decoded.size()), std::vector<double>(decoded.size())};
  if (changes_weights(staged, planes.spec()) && !restaged(staged)) {
    restage_codebooks(planes, out.weight);
    std::ranges::transform(out.weight, out.magnitude.begin(), [](double w) { return std::fabs(w); });
    return out;
  }
  if (restaged(staged)) {
    for (int64_t n = 0; n < planes.rows(); ++n) {
      const int64_t at = n * planes.cols();
      if (staged == StagedType::f8_row) {
        restage_f8_row(planes, n, decoded.data() + at, out.weight.data() + at);
      } else {
        restage_row(staged, planes, n, decoded.data() + at, out.weight.data() + at);
      }
    }
    std::ranges::transform(out.weight, out.magnitude.begin(), [](double w) { return std::fabs(w); });
    return out;
  }
  for (int64_t n = 0; n < planes.rows(); ++n) {
    const PlaneRow row = planes.row(n);
    for (int64_t k = 0; k < planes.cols(); ++k) {
      const auto at = static_cast<size_t>(n * planes.cols() + k);
      out.weight[at] = staged == StagedType::bf16 ? nearest_bf16(decoded[at]) : decoded[at];
      out.magnitude[at] = std::fabs(out.weight[at]);
      if (staged != StagedType::bf16) out.magnitude[at] += 2 * std::fabs(bias_of(planes.spec(), row, k));
    }
  }
  return out;
}

/// Weights of levels before any rounding but that of nested scales.
Staged unrounded_levels(const Planes& planes) {
  Staged out{{}, {}};
  for (int64_t n = 0; n < planes.rows(); ++n) {
    const PlaneRow row = planes.row(n);
    for (int64_t k = 0; k < planes.cols(); ++k) {
      const auto [scale, bias] = scales_of(planes.spec(), row, k);
      const double product = double{scale} * planes.spec().code.level(row.codes[k]);
      out.weight.push_back(product + bias);
      out.magnitude.push_back(std::fabs(product) + std::fabs(double{bias}));
    }
  }
  return out;
}

/// Codebook weights before any rounding but that of their sums, and the magnitudes of their codewords.
Staged unrounded(const Planes& planes) {
  const CodeSpec& code = planes.spec().code;
  if (!code.is_codebook()) return unrounded_levels(planes);
  Staged out{{}, {}};
  for (int64_t n = 0; n < planes.rows(); ++n) {
    const PlaneRow row = planes.row(n);
    for (int64_t k = 0; k < planes.cols(); ++k) {
      const double scale = row.scale[k / planes.spec().scale.group];
      double sum = 0, magnitude = 0;
      for (int b = 0; b < code.books; ++b) {
        const int word = row.codes[k / code.vector * code.books + b];
        const double value = row.codebooks[(b * kCodewords + word) * code.vector + k % code.vector];
        sum += value;
        magnitude += std::fabs(value);
      }
      out.weight.push_back(scale * sum);
      out.magnitude.push_back(std::fabs(scale) * magnitude);
    }
  }
  return out;
}

Judged zeros(int64_t rows, int64_t cols) {
  const auto count = static_cast<size_t>(rows * cols);
  return {std::vector<double>(count), std::vector<double>(count)};
}

double roundings(StagedType staged, const Planes& planes, const ActivationsView& x) {
  if (staged == StagedType::bf16) return static_cast<double>(planes.cols() + 1);
  if (staged == StagedType::f8_row) return 128 + std::ceil(static_cast<double>(planes.cols()) / 128) + 3;
  if (staged == StagedType::f8_group) {
    const int group = planes.spec().scale.group;
    return static_cast<double>(group + planes.cols() / group + 3);
  }
  if (restaged(staged)) return static_cast<double>(2 * x.groups.scales(planes.cols()) + 3);
  return static_cast<double>(planes.cols() / x.groups.scale_group + 1 + 8);
}

}  // namespace

double nearest_bf16(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);                                       // |value| in [2^(e-1), 2^e): 8 significant bits
  const int step = std::max(exponent - 8, -133);                      // the smallest step of a bfloat16 is 2^-133
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);  // nearbyint: ties to even
}

double nearest_e4m3(double value) {
  if (value == 0 || std::isnan(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(e-1), 2^e): 4 significant bits
  const double rounded =
      std::ldexp(std::nearbyint(std::ldexp(value, -std::max(exponent - 4, -9))), std::max(exponent - 4, -9));
  return std::clamp(rounded, -448.0, 448.0);
}

Judged judge_kernel(StagedType staged, Exactness exactness, const Planes& planes, const Formed& x) {
  const ActivationsView view = x.view();
  const int64_t rows = view.rows, outputs = planes.rows(), cols = planes.cols();
  const Staged w = exactness == Exactness::unrounded ? unrounded(planes) : stage(staged, planes);
  std::vector<double> token(static_cast<size_t>(cols));
  Judged judged = zeros(rows, outputs);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < cols; ++k) token[static_cast<size_t>(k)] = x.value(m, k);
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<size_t>(n * cols + k);
        sum += w.weight[at] * token[static_cast<size_t>(k)];
        magnitude += w.magnitude[at] * std::fabs(token[static_cast<size_t>(k)]);
      }
      const auto at = static_cast<size_t>(m * outputs + n);
      judged.y[at] = sum;
      judged.tolerance[at] = kHigherOrder * (kUnit * magnitude + kSmallest) * roundings(staged, planes, view);
    }
  }
  return judged;
}

Judged judge_total(StagedType staged, const Planes& planes, const Activations& x, const Formed& formed,
                   const Judged& kernel) {
  const std::vector<float> w = decode(planes);
  const Staged multiplied = stage(staged, planes);
  const int64_t outputs = planes.rows(), cols = planes.cols();
  Judged judged = zeros(x.rows(), outputs);
  std::vector<double> slack(static_cast<size_t>(cols));  // how far an operand product may be from its fp32 one, per |w|
  for (int64_t m = 0; m < x.rows(); ++m) {
    for (int64_t k = 0; k < cols; ++k) {
      const double magnitude = std::fabs(x.at(m, k));
      double& s = slack[static_cast<size_t>(k)];
      if (staged == StagedType::bf16) {
        s = magnitude * (2 * 0x1p-8 + 0x1p-16);
      } else if (formed.view().form == ActivationForm::e4m3) {
        const double scale = formed.scale(m, k);
        s = scale == 0 ? magnitude : std::max(magnitude * 0x1p-4, scale * 0x1p-10);
      } else {
        const double scale = formed.scale(m, k);
        s = scale == 0 ? magnitude : scale * (0.5 + 0x1p-15) + magnitude * 2 * kUnit;
      }
    }
    for (int64_t n = 0; n < outputs; ++n) {
      const auto at = static_cast<size_t>(m * outputs + n);
      judged.tolerance[at] = kernel.tolerance[at];
      for (int64_t k = 0; k < cols; ++k) {
        const double weight = w[static_cast<size_t>(n * cols + k)];
        judged.y[at] += weight * x.at(m, k);
        judged.tolerance[at] += std::fabs(weight) * slack[static_cast<size_t>(k)];
        if (!changes_weights(staged, planes.spec())) continue;
        const double change = multiplied.weight[static_cast<size_t>(n * cols + k)] - weight;
        judged.tolerance[at] += std::fabs(change) * (std::fabs(x.at(m, k)) + slack[static_cast<size_t>(k)]);
      }
    }
  }
  return judged;
}

std::string mismatch(const Judged& judged, MatrixView<const float> y) {
  for (int64_t m = 0; m < y.rows; ++m) {
    for (int64_t n = 0; n < y.cols; ++n) {
      const auto at = static_cast<size_t>(m * y.cols + n);
      const double error = std::fabs(y(m, n) - judged.y[at]);
      if (error <= judged.tolerance[at]) continue;  // false for NaN as well
      return fmt::format("y({}, {}): wanted {} within {}, got {}", m, n, judged.y[at], judged.tolerance[at], y(m, n));
    }
  }
  return {};
}

}  // namespace octalane::test
