// Codebooks as the int8 lane has them: one unit for the whole matrix, so that weights re-encode as they are decoded and
// keep their scale per group.
//
// unit:  largest |sum of one codeword of each book| / 127, over all pairs of codewords (0 when too small to divide by).
// fixed: the low 16 bits of rne(codeword * 128 / unit).
// level: (sum of fixed + 64) >> 7, in 16-bit arithmetic that wraps; |level| <= 127.
// w:     (scale * unit) * level; the product of scale and unit is rounded to fp32.
// |level * unit - sum of codewords| <= unit * (1/2 + 1/128), to a few roundings of fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/code_spec.h"

namespace octalane {

/// Precondition: finite codebooks, [books][kCodewords][vector].
inline float codebook_unit(const CodeSpec& code, const float* codebooks) {
  float largest = 0.0f;
  for (int t = 0; t < code.vector; ++t) {
    float least = 0.0f, most = 0.0f;
    for (int b = 0; b < code.books; ++b) {
      const float* book = codebooks + b * kCodewords * code.vector + t;
      float low = book[0], high = book[0];
      for (int i = 1; i < kCodewords; ++i) {
        low = std::min(low, book[i * code.vector]);
        high = std::max(high, book[i * code.vector]);
      }
      least += low;
      most += high;
    }
    largest = std::max({largest, -least, most});
  }
  const float unit = largest / 127.0f;
  return std::isfinite(128.0f / unit) ? unit : 0.0f;
}

inline int16_t fixed_codeword(float value, float unit) {
  if (unit == 0.0f) return 0;
  return static_cast<int16_t>(static_cast<int64_t>(std::rint(value * (128.0f / unit))));
}

/// The level of a sum of fixed codewords.
constexpr int codebook_level(int sum) { return static_cast<int16_t>(static_cast<uint16_t>(sum + 64)) >> 7; }

}  // namespace octalane
