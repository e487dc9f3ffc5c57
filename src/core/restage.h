// Re-encoding of weights for s8.row, s8.xblock, s8.block and f8.row: one scale over a whole row, or over 256 columns of
// it, in place of a scale per group. Lossy; codes stay as they are in memory and kernels re-encode as they decode.
//
// int8.
// With s8 = amax / 127 over the unit (row or 256 columns from its start; the last may be shorter; 0 when too small to
// divide by), r = 256 / s8 (0 when s8 is 0), and the fp32 scale and bias in effect for a group (core/code_spec.h):
//   S = rne(scale * r), B = rne(bias * r)                        integers, of which the low 16 bits matter
//   staged = (S * level + B + 128) >> 8                          in 16-bit arithmetic that wraps
// Every weight that occurs lies within +-amax, so |S * level + B| < 2^15 for its level and wrapping does no harm.
// |staged * s8 - w| <= s8 * (0.5 + (|level| + 1) / 512), to a few roundings of fp32.
//
// E4M3, for scales that are powers of two. With 2^E the largest scale among the groups of the row that hold anything
// but zeros, and 2^h the largest power of two with 2^h * (largest level of the code) <= 448 (E4M3: 1; E2M1 kept
// doubled: 32),
//   unit = 2^(E - h) (0 for a row of zeros)
//   staged = E4M3(level * (scale / unit)), to nearest-even, subnormals kept; w = staged * unit
// Exact but for what falls among the subnormals: at most unit * 2^-10 off. E2M1 is exact while the scales of a row are
// within 2^14 of each other.
#pragma once

#include <cstdint>

#include "core/code_spec.h"
#include "core/half.h"
#include "core/inline.h"
#include "core/staged_type.h"

namespace octalane {

inline constexpr int kRestageBlock = 256;  ///< columns of a unit of s8.block; all others: the row

/// Columns that f8.row sums before it adds their sum to the output: no lane keeps fewer than fp32's bits for longer.
inline constexpr int kPromotedCols = 128;

/// Which of the lossy staged types need it, and how far their weight scales reach.
OCTALANE_INLINE constexpr bool restaged_by_row(StagedType t) {
  return t == StagedType::s8_row || t == StagedType::s8_xblock || t == StagedType::f8_row;
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

/// 2^-h of a code for f8.row.
OCTALANE_INLINE constexpr float e4m3_unit_of_scale(const CodeSpec& code) {
  if (code.map != CodeMap::table) return 1.0f;
  int largest = 1;
  for (const int level : code.table) largest = level > largest ? level : -level > largest ? -level : largest;
  float unit = 1.0f;
  while (static_cast<float>(2 * largest) <= 448.0f * unit) unit /= 2;
  return unit;
}

/// The code of a weight of f8.row; 0 when unit is 0. Zeros come first: the scale of nothing but zeros may be any.
OCTALANE_INLINE uint8_t restage_e4m3(float level, float scale, float unit) {
  if (unit == 0.0f || level == 0.0f) return 0;
  // The quotient of two powers of two: exact in fp64, and too small for fp32 only where it rounds to 0 anyway.
  return f32_to_e4m3(level * static_cast<float>(double{scale} / double{unit}));
}

}  // namespace octalane
