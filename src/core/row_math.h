// The maths of one row of activations, in an order of operations that depends on nothing but its length: a row comes
// out the same to the bit alone or in a batch, on any thread, on any machine. Plain code without calls or branches in
// its loops: every instruction set compiles it for its own vectors.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "core/inline.h"

namespace octalane {

/// e^x to within 2 ulp for x in [-87, 88], clamped outside; NaN stays NaN.
/// x = n ln 2 + r; e^r by its Taylor series to r^7 (relative error < 1e-8 for |r| <= 0.35), then times 2^n.
OCTALANE_INLINE float exp_f32(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;  // the high part times n <= 2^8 is exact
  constexpr float kRound = 12582912.0f;                               // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kRound) + 127u;
  return sum * __builtin_bit_cast(float, exponent << 23);
}

/// out = x / sqrt(mean(x^2) + epsilon) * weight. The mean is accumulated in fp64. `out` may be `x`.
OCTALANE_INLINE void rms_norm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(n) + static_cast<double>(epsilon);
  const auto scale = static_cast<float>(1.0 / __builtin_sqrt(mean));
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

/// gate = silu(gate) * up, silu(z) = z / (1 + e^-z).
OCTALANE_INLINE void silu_multiply(float* __restrict gate, const float* __restrict up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

/// x += y
OCTALANE_INLINE void add(float* __restrict x, const float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

/// out = x as IEEE halves, `stride` elements apart.
OCTALANE_INLINE void store_halves(const float* x, int64_t n, uint16_t* out, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) out[i * stride] = f32_to_f16(x[i]);
}

}  // namespace octalane
