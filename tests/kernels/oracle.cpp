#include "kernels/oracle.h"

#include <fmt/format.h>

#include <cmath>

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

Staged stage(StagedType staged, const Planes& planes) {
  const std::vector<float> decoded = decode(planes);
  Staged out{std::vector<double>(decoded.size()), std::vector<double>(decoded.size())};
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

Judged zeros(int64_t rows, int64_t cols) {
  const auto count = static_cast<size_t>(rows * cols);
  return {std::vector<double>(count), std::vector<double>(count)};
}

double roundings(StagedType staged, const Planes& planes, const ActivationsView& x) {
  if (staged == StagedType::bf16) return static_cast<double>(planes.cols() + 1);
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

Judged judge_kernel(StagedType staged, const Planes& planes, const Formed& x) {
  const ActivationsView view = x.view();
  const int64_t rows = view.rows, outputs = planes.rows(), cols = planes.cols();
  const Staged w = stage(staged, planes);
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
  const int64_t outputs = planes.rows(), cols = planes.cols();
  Judged judged = zeros(x.rows(), outputs);
  std::vector<double> slack(static_cast<size_t>(cols));  // how far an operand product may be from its fp32 one, per |w|
  for (int64_t m = 0; m < x.rows(); ++m) {
    for (int64_t k = 0; k < cols; ++k) {
      const double magnitude = std::fabs(x.at(m, k));
      double& s = slack[static_cast<size_t>(k)];
      if (staged == StagedType::bf16) {
        s = magnitude * (2 * 0x1p-8 + 0x1p-16);
      } else {
        const ActivationsView view = formed.view();
        const double scale = view.scales[(m * view.stride + k) / view.groups.scale_group];
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
