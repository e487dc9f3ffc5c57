#include "formats/fit.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"

namespace octalane::fit {
namespace {

constexpr int lanes = 8;

/// Sums over the levels that x rounds to under one trial (offset, 1 / scale).
struct LevelSums {
  float level = 0;        ///< sum L
  float level2 = 0;       ///< sum L^2
  float value_level = 0;  ///< sum (x - offset) L
};

float total(const float (&lane)[lanes]) {
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

LevelSums level_sums(const float* x, int count, float offset, float inverse, float low, float high) {
  float level[lanes] = {}, level2[lanes] = {}, value_level[lanes] = {};
  for (int i = 0; i < count; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float value = x[i + l] - offset;
      const float rounded = round_even(std::min(std::max(value * inverse, low), high));
      level[l] += rounded;
      level2[l] += rounded * rounded;
      value_level[l] += value * rounded;
    }
  }
  return {total(level), total(level2), total(value_level)};
}

float sum_of(const float* x, int count, float offset) {
  float sum[lanes] = {};
  for (int i = 0; i < count; i += lanes) {
    for (int l = 0; l < lanes; ++l) sum[l] += x[i + l] - offset;
  }
  return total(sum);
}

struct Trial {
  Affine fit;      ///< bias relative to the offset
  float gain = 0;  ///< how much of the squared error the fit explains
};

/// The least-squares scale and bias for the levels of one trial; `ceiling` = the largest bias allowed.
Trial solve(const LevelSums& sums, float n, float sum_x, float ceiling) {
  const float determinant = n * sums.level2 - sums.level * sums.level;  // exact below 2^24; n is a power of two
  if (sums.level2 == 0.0f) return {};
  Affine fit;
  if (determinant > 0.0f) {
    fit.scale = (n * sums.value_level - sum_x * sums.level) / determinant;
    fit.bias = (sum_x - fit.scale * sums.level) / n;
  }
  if (determinant == 0.0f || fit.bias > ceiling) {  // one level for all values, or a bias that cannot be stored
    fit.bias = determinant == 0.0f ? 0.0f : ceiling;
    fit.scale = (sums.value_level - fit.bias * sums.level) / sums.level2;
  }
  const float gain = fit.scale * (2.0f * sums.value_level - fit.scale * sums.level2) +
                     fit.bias * (2.0f * (sum_x - fit.scale * sums.level) - n * fit.bias);
  return {fit, gain};
}

}  // namespace

void sanitize(const float* values, int count, float limit, float* out) {
  for (int i = 0; i < count; ++i) {
    const float value = values[i] == values[i] ? values[i] : 0.0f;
    out[i] = std::min(std::max(value, -limit), limit);
  }
}

float signed_extremum(const float* x, int count) {
  const auto [low, high] = std::minmax_element(x, x + count);
  return -*low > *high ? *low : *high;
}

float scale_for_levels(const float* x, int count, int low, int high) {
  const float extremum = signed_extremum(x, count);
  if (std::fabs(extremum) < smallest) return 0.0f;
  float best_scale = 0.0f, best_gain = -1.0f;
  // The extremum at, beyond and inside the lowest level; whole steps restore values that already are levels.
  for (int quarter = -4; quarter <= 8; ++quarter) {
    const float inverse = (static_cast<float>(low) + 0.25f * static_cast<float>(quarter)) / extremum;
    const LevelSums sums = level_sums(x, count, 0.0f, inverse, static_cast<float>(low), static_cast<float>(high));
    const float gain = sums.value_level * sums.value_level / sums.level2;
    if (gain > best_gain) {
      best_gain = gain;
      best_scale = sums.value_level / sums.level2;
    }
  }
  return best_scale;
}

Affine affine_for_levels(const float* x, int count, int top, Bias allowed) {
  const auto [low_at, high_at] = std::minmax_element(x, x + count);
  const float low = allowed == Bias::nonpositive ? std::min(*low_at, 0.0f) : *low_at;
  const float high = *high_at;
  const float range = high - low;
  if (range < smallest) return {0.0f, low};
  const float n = static_cast<float>(count);
  const float levels = static_cast<float>(top);
  const float step = range / levels;
  const float sum_x = sum_of(x, count, low);
  const float ceiling = allowed == Bias::nonpositive ? -low : largest;
  Trial best;
  const auto attempt = [&](float bias, float inverse) {
    // level_sums takes values relative to low + bias; the sums are moved back to values relative to low.
    LevelSums sums = level_sums(x, count, low + bias, inverse, 0.0f, levels);
    sums.value_level += bias * sums.level;
    const Trial trial = solve(sums, n, sum_x, ceiling);
    if (trial.gain > best.gain && trial.fit.scale > 0.0f) best = trial;
  };
  constexpr float trims[] = {0.0f, -0.3f, 0.4f, 0.8f};  // in steps; 0 first: it restores values that are levels
  for (const float bottom : trims) {
    for (const float cut : trims) attempt(bottom * step, 1.0f / (step * (1.0f - (bottom + cut) / levels)));
  }
  if (best.fit.scale > 0.0f) attempt(best.fit.bias, 1.0f / best.fit.scale);
  return {best.fit.scale, low + best.fit.bias};
}

float scale_for_bias(const float* x, int count, Affine trial, int top) {
  if (std::fabs(trial.scale) < smallest) return trial.scale;
  const LevelSums sums = level_sums(x, count, trial.bias, 1.0f / trial.scale, 0.0f, static_cast<float>(top));
  return sums.level2 == 0.0f ? trial.scale : sums.value_level / sums.level2;
}

void codes_for(const float* x, int count, Affine stored, int low, int high, uint8_t* codes) {
  const float inverse = std::fabs(stored.scale) < smallest ? 0.0f : 1.0f / stored.scale;
  const float bottom = static_cast<float>(low), top = static_cast<float>(high);
  for (int i = 0; i < count; ++i) {
    const float level = round_even(std::min(std::max((x[i] - stored.bias) * inverse, bottom), top));
    codes[i] = static_cast<uint8_t>(static_cast<int>(level) - low);
  }
}

float rounding_error(const float* x, int count, Affine stored, int low, int high) {
  const float inverse = std::fabs(stored.scale) < smallest ? 0.0f : 1.0f / stored.scale;
  const float bottom = static_cast<float>(low), top = static_cast<float>(high);
  float sum[lanes] = {};
  for (int i = 0; i < count; i += lanes) {
    for (int l = 0; l < lanes; ++l) {
      const float value = x[i + l] - stored.bias;
      const float error = value - stored.scale * round_even(std::min(std::max(value * inverse, bottom), top));
      sum[l] += error * error;
    }
  }
  return total(sum);
}

uint16_t saturated_f16(float value) {
  constexpr float largest_half = 65504.0f;
  return f32_to_f16(std::min(std::max(value, -largest_half), largest_half));
}

}  // namespace octalane::fit
