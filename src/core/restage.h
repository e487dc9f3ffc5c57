// Re-encoding of weights for s8.row, s8.xblock and s8.block: one int8 scale over a whole row, or over 256 columns of
// it, in place of a scale per group. Lossy; codes stay as they are in memory and kernels re-encode as they decode.
//
// With s8 = amax / 127 over the unit (row or 256 columns from its start; the last may be shorter; 0 when too small to
// divide by), r = 256 / s8 (0 when s8 is 0), and the fp32 scale and bias in effect for a group (core/code_spec.h):
//   S = rne(scale * r), B = rne(bias * r)                        integers, of which the low 16 bits matter
//   staged = (S * level + B + 128) >> 8                          in 16-bit arithmetic that wraps
// Every weight that occurs lies within +-amax, so |S * level + B| < 2^15 for its level and wrapping does no harm.
// |staged * s8 - w| <= s8 * (0.5 + (|level| + 1) / 512), to a few roundings of fp32.
#pragma once

#include <cstdint>

#include "core/inline.h"
#include "core/staged_type.h"

namespace octalane {

inline constexpr int kRestageBlock = 256;  ///< columns of a unit of s8.block; s8.row and s8.xblock: the row

/// Which of the lossy staged types need it, and how far their weight scales reach.
OCTALANE_INLINE constexpr bool restaged_by_row(StagedType t) {
  return t == StagedType::s8_row || t == StagedType::s8_xblock;
}
OCTALANE_INLINE constexpr bool restaged(StagedType t) { return restaged_by_row(t) || t == StagedType::s8_block; }

OCTALANE_INLINE constexpr float restage_factor(float s8) { return s8 > 0.0f ? 256.0f / s8 : 0.0f; }

/// S or B of a group; 0 when value * factor is not finite or beyond 32 bits, as the vector conversions have it.
OCTALANE_INLINE int16_t restage_fixed(float value, float factor) {
  const float product = value * factor;
  if (!(product >= -0x1p31f && product < 0x1p31f)) return 0;
  return static_cast<int16_t>(static_cast<int32_t>(__builtin_rintf(product)));
}

OCTALANE_INLINE constexpr int8_t restage_code(int level, int16_t s, int16_t b) {
  const auto sum = static_cast<int16_t>(static_cast<uint16_t>(s * level + b + 128));
  return static_cast<int8_t>(sum >> 8);
}

}  // namespace octalane
