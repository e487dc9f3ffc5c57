#include "formats/nested.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/half.h"
#include "formats/fit.h"

namespace octalane::fit {
namespace {

/// The least-squares (scale, bias) of the whole block, its codes and integer scales held: the 2 x 2 normal equations of
/// w = scale * (sub_scale * level) - bias * sub_min.
Affine refit_scales(const float* x, const NestedShape& shape, const NestedBlock& block) {
  double uu = 0, uv = 0, vv = 0, ux = 0, vx = 0;
  for (int g = 0; g < nested_values / shape.group; ++g) {
    float level_sum = 0, level2_sum = 0, value_level_sum = 0, value_sum = 0;
    for (int i = g * shape.group; i < (g + 1) * shape.group; ++i) {
      const float level = static_cast<float>(block.codes[i] + shape.low);
      level_sum += level;
      level2_sum += level * level;
      value_level_sum += x[i] * level;
      value_sum += x[i];
    }
    const double sub_scale = block.sub_scale[g], sub_min = -block.sub_min[g];
    uu += sub_scale * sub_scale * level2_sum;
    uv += sub_scale * sub_min * level_sum;
    vv += sub_min * sub_min * shape.group;
    ux += sub_scale * value_level_sum;
    vx += sub_min * value_sum;
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-9 * uu * vv) {
    return {static_cast<float>((ux * vv - vx * uv) / determinant),
            static_cast<float>((vx * uu - ux * uv) / determinant)};
  }
  return {uu > 0 ? static_cast<float>(ux / uu) : 0.0f, 0.0f};
}

int rounded_ratio(float value, float unit, int low, int high) {
  if (std::fabs(unit) < smallest) return std::clamp(0, low, high);
  return static_cast<int>(round_even(std::clamp(value / unit, static_cast<float>(low), static_cast<float>(high))));
}

/// The integer scale and minimum of one group, near those that its own fit asks for, that lose least.
void choose_integers(const float* x, const NestedShape& shape, Affine wanted, Affine unit, int8_t& sub_scale,
                     int8_t& sub_min) {
  const int scale_at = rounded_ratio(wanted.scale, unit.scale, shape.sub_low, shape.sub_high);
  const int min_at = shape.has_minimums ? rounded_ratio(-wanted.bias, unit.bias, 0, shape.sub_high) : 0;
  const int min_reach = shape.has_minimums ? 1 : 0;
  float least = std::numeric_limits<float>::infinity();
  for (int s = std::max(scale_at - 1, shape.sub_low); s <= std::min(scale_at + 1, shape.sub_high); ++s) {
    for (int m = std::max(min_at - min_reach, 0); m <= std::min(min_at + min_reach, shape.sub_high); ++m) {
      const Affine stored{unit.scale * static_cast<float>(s), -(unit.bias * static_cast<float>(m))};
      const float error = rounding_error(x, shape.group, stored, shape.low, shape.high);
      if (error >= least) continue;
      least = error;
      sub_scale = static_cast<int8_t>(s);
      sub_min = static_cast<int8_t>(m);
    }
  }
}

Affine unit_of(const NestedBlock& block) { return {f16_to_f32(block.scale), f16_to_f32(block.bias)}; }

/// Rounds all values to the levels of the stored scales; returns the squared error.
float round_codes(const float* x, const NestedShape& shape, NestedBlock& block) {
  const Affine unit = unit_of(block);
  float error = 0;
  for (int g = 0; g < nested_values / shape.group; ++g) {
    const Affine stored{unit.scale * static_cast<float>(block.sub_scale[g]),
                        -(unit.bias * static_cast<float>(block.sub_min[g]))};
    const float* at = x + g * shape.group;
    codes_for(at, shape.group, stored, shape.low, shape.high, block.codes + g * shape.group);
    error += rounding_error(at, shape.group, stored, shape.low, shape.high);
  }
  return error;
}

}  // namespace

NestedBlock fit_nested(const float* values, const NestedShape& shape) {
  float x[nested_values];
  sanitize(values, nested_values, largest, x);
  const int groups = nested_values / shape.group;
  Affine wanted[16];
  Affine top;
  for (int g = 0; g < groups; ++g) {
    const float* at = x + g * shape.group;
    wanted[g] = shape.has_minimums ? affine_for_levels(at, shape.group, shape.high, Bias::nonpositive)
                                   : Affine{scale_for_levels(at, shape.group, shape.low, shape.high), 0.0f};
    if (std::fabs(wanted[g].scale) > std::fabs(top.scale)) top.scale = wanted[g].scale;
    top.bias = std::max(top.bias, -wanted[g].bias);
  }
  // The largest sub-scale takes the end of the integer range that reaches furthest; with a signed range the common
  // scale carries the sign.
  const int end = -shape.sub_low > shape.sub_high ? shape.sub_low : shape.sub_high;
  NestedBlock block;
  block.scale = saturated_f16(top.scale / static_cast<float>(end));
  block.bias = saturated_f16(top.bias / static_cast<float>(shape.sub_high));
  for (int g = 0; g < groups; ++g) {
    choose_integers(x + g * shape.group, shape, wanted[g], unit_of(block), block.sub_scale[g], block.sub_min[g]);
  }
  const float error = round_codes(x, shape, block);
  NestedBlock refined = block;
  const Affine refit = refit_scales(x, shape, block);
  refined.scale = saturated_f16(refit.scale);
  refined.bias = saturated_f16(refit.bias);
  return round_codes(x, shape, refined) < error ? refined : block;
}

}  // namespace octalane::fit
