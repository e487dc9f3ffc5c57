#include <cmath>
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

int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : value > high ? high : value; }

/// One row: at(c) is where the code of column c goes.
template <class At>
void quantize_row(const QuantizeArgs& args, int64_t r, At at) {
  const ActivationGroups& groups = args.groups;
  const float* x = args.x.row(r);
  for (int64_t g = 0; g < groups.scales(args.stride); ++g) {
    const int64_t begin = g * groups.scale_group, end = clamp(begin + groups.scale_group, 0, args.stride);
    const int64_t filled = clamp(args.x.cols, begin, end);
    const float amax = largest(x + begin, filled - begin);
    const float inverse = 127.0f / amax;
    const bool usable = std::isfinite(inverse);  // neither zero, nor too small to divide by, nor NaN
    for (int64_t c = begin; c < end; ++c) {
      at(c) = usable && c < filled ? static_cast<int8_t>(std::nearbyint(x[c] * inverse)) : int8_t{0};
    }
    args.scales[r * groups.scales(args.stride) + g] = std::isnan(amax) ? amax : usable ? amax / 127.0f : 0.0f;
  }
  for (int64_t g = 0; g < groups.sums(args.stride); ++g) {
    int32_t sum = 0;
    for (int64_t c = g * groups.sum_group; c < (g + 1) * groups.sum_group; ++c) sum += at(c);
    args.sums[r * groups.sums(args.stride) + g] = sum;
  }
}

}  // namespace

void quantize_bf16(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    float* out = args.f32 + r * args.stride;
    for (int64_t c = 0; c < args.x.cols; ++c) out[c] = round_to_bf16(args.x.row(r)[c]);
    for (int64_t c = args.x.cols; c < args.stride; ++c) out[c] = 0.0f;
  }
}

void quantize_s8(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    quantize_row(args, r, [&](int64_t c) -> int8_t& { return args.codes[r * args.stride + c]; });
  }
}

void quantize_bf16_tiles(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    for (int64_t c = 0; c < args.stride; ++c) {
      args.bf16[tiled_index(r, c, args.stride, 32)] = c < args.x.cols ? f32_to_bf16(args.x.row(r)[c]) : uint16_t{0};
    }
  }
}

void quantize_s8_tiles(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    quantize_row(args, r, [&](int64_t c) -> int8_t& { return args.codes[tiled_index(r, c, args.stride, 64)]; });
  }
}

void quantize_e4m3(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x.row(r);
    const float amax = largest(x, args.x.cols);
    int exponent = 0;
    const float fraction = std::frexp(amax, &exponent);  // amax = fraction * 2^exponent, 448 = 0.875 * 2^9
    exponent -= fraction <= 0.875f ? 9 : 8;
    const bool usable = amax > 0.0f && exponent >= -126;  // neither zero, nor too small to divide by, nor NaN
    args.scales[r] = std::isnan(amax) ? amax : usable ? std::ldexp(1.0f, exponent) : 0.0f;
    const float inverse = usable ? std::ldexp(1.0f, -exponent) : 0.0f;
    for (int64_t c = 0; c < args.stride; ++c) {
      const bool zero = !usable || c >= args.x.cols;
      args.codes[r * args.stride + c] = zero ? int8_t{0} : static_cast<int8_t>(f32_to_e4m3(x[c] * inverse));
    }
  }
}

}  // namespace octalane::scalar
