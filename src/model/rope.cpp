#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace octalane {
namespace {

/// The (fractional) pair that makes `turns` full turns over the original context.
double pair_turning(const RopeConfig& config, double turns) {
  const double wavelengths = static_cast<double>(config.original_context) / (turns * 2 * std::numbers::pi);
  return static_cast<double>(config.dimensions) * std::log(wavelengths) / (2 * std::log(config.base));
}

/// YaRN's blend for pair i: 1 = the angle is kept, 0 = it is divided by the factor, linear between the two limits.
double kept_share(const RopeConfig& config, int64_t i) {
  const double low = std::max(0.0, std::floor(pair_turning(config, config.beta_fast)));
  const double high =
      std::min(static_cast<double>(config.dimensions - 1), std::ceil(pair_turning(config, config.beta_slow)));
  return 1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
}

}  // namespace

Rope::Rope(const RopeConfig& config, std::span<const float> divisors)
    : style_(config.pairs), magnitude_(config.attention_factor) {
  if (config.scaling == RopeScaling::yarn && config.factor > 1) magnitude_ *= 0.1 * std::log(config.factor) + 1;
  for (int64_t i = 0; i < config.dimensions / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.dimensions);
    double radians = std::pow(config.base, exponent);
    if (!divisors.empty()) radians /= static_cast<double>(divisors[static_cast<size_t>(i)]);
    const double kept = config.scaling == RopeScaling::yarn ? kept_share(config, i) : 0;
    radians_.push_back(radians * (kept + (1 - kept) / config.factor));
  }
}

void Rope::turns(int64_t position, float* cosines, float* sines) const {
  for (size_t i = 0; i < radians_.size(); ++i) {
    const double angle = static_cast<double>(position) * radians_[i];
    cosines[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sines[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

void Rope::rotate(const float* cosines, const float* sines, float* head) const {
  const int64_t count = pairs();
  const int64_t step = style_ == RopePairs::adjacent ? 2 : 1;
  const int64_t apart = style_ == RopePairs::adjacent ? 1 : count;
  for (int64_t i = 0; i < count; ++i) {
    float& first = head[step * i];
    float& second = head[step * i + apart];
    const float a = first, b = second;
    first = a * cosines[i] - b * sines[i];
    second = a * sines[i] + b * cosines[i];
  }
}

}  // namespace octalane
