#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "kernels/scalar/kernels.h"

namespace octalane::scalar {
namespace {

/// The largest magnitude of n values; NaN when one of them is not finite.
float largest(const float* x, int64_t n) {
  float amax = 0.0f;
  for (int64_t c = 0; c < n; ++c) {
    if (!std::isfinite(x[c])) return std::numeric_limits<float>::quiet_NaN();
    amax = std::fmax(amax, std::fabs(x[c]));
  }
  return amax;
}

/// Writes `group` codes from the first n values (the rest are padding) and returns their scale.
float quantize_group(const float* x, int64_t n, int group, int8_t* codes) {
  std::memset(codes, 0, static_cast<size_t>(group));
  const float amax = largest(x, n);
  if (std::isnan(amax)) return amax;
  const float inverse = 127.0f / amax;
  if (!std::isfinite(inverse)) return 0.0f;  // zero, or too small to divide by
  for (int64_t c = 0; c < n; ++c) codes[c] = static_cast<int8_t>(std::nearbyint(x[c] * inverse));
  return amax / 127.0f;
}

int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : value > high ? high : value; }

}  // namespace

void quantize_bf16(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    float* out = args.f32 + r * args.stride;
    for (int64_t c = 0; c < args.x.cols; ++c) out[c] = round_to_bf16(args.x.row(r)[c]);
    for (int64_t c = args.x.cols; c < args.stride; ++c) out[c] = 0.0f;
  }
}

void quantize_s8(const QuantizeArgs& args) {
  const int scale_group = args.groups.scale_group, sum_group = args.groups.sum_group;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x.row(r);
    int8_t* codes = args.codes + r * args.stride;
    float* scales = args.scales + r * (args.stride / scale_group);
    int32_t* sums = args.sums + r * (args.stride / sum_group);
    for (int64_t g = 0; g < args.stride / scale_group; ++g) {
      const int64_t column = g * scale_group;
      scales[g] = quantize_group(x + column, clamp(args.x.cols - column, 0, scale_group), scale_group, codes + column);
    }
    for (int64_t g = 0; g < args.stride / sum_group; ++g) {
      int32_t sum = 0;
      for (int64_t c = g * sum_group; c < (g + 1) * sum_group; ++c) sum += codes[c];
      sums[g] = sum;
    }
  }
}

}  // namespace octalane::scalar
