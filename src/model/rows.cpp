#include "model/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/half.h"
#include "core/inline.h"

namespace octalane {
namespace {

/// x = n ln 2 + r; e^r by its Taylor series to r^7 (relative error < 1e-8 for |r| <= 0.35), then times 2^n. Without
/// branches or library calls, so that loops over it become vector code.
OCTALANE_INLINE float exp_inline(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;  // the high part times n <= 2^8 is exact
  constexpr float kRound = 12582912.0f;                               // 1.5 * 2^23: adding it rounds to an integer
  x = std::min(std::max(x, -87.0f), 88.0f);
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
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127u;
  return sum * std::bit_cast<float>(exponent << 23);
}

}  // namespace

float exp_f32(float x) { return exp_inline(x); }

void rms_norm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
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
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(epsilon)));
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void silu_multiply(float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = gate[i] / (1.0f + exp_inline(-gate[i])) * up[i];
}

void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void store_halves(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = f32_to_f16(x[i]);
}

}  // namespace octalane
