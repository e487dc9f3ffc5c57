// Activations in the form that a kernel multiplies. Quantized once per layer input, used by all its products.
#pragma once

#include <cstdint>

#include "core/inline.h"

namespace octalane {

enum class ActivationForm : uint8_t {
  bf16_as_f32,  ///< rounded to bfloat16, kept at fp32 width (lanes that multiply in fp32)
  s8,           ///< int8 codes, one fp32 scale per scale_group, sums of codes per sum_group
  bf16_tiles,   ///< bfloat16, in the order of matrix tiles
  s8_tiles,     ///< as s8, codes in the order of matrix tiles
  e4m3,         ///< codes are the bits of E4M3 values; one scale per row, a power of two
};

OCTALANE_INLINE constexpr bool is_s8(ActivationForm form) {
  return form == ActivationForm::s8 || form == ActivationForm::s8_tiles;
}
/// Bytes with scales.
OCTALANE_INLINE constexpr bool has_codes(ActivationForm form) { return is_s8(form) || form == ActivationForm::e4m3; }
OCTALANE_INLINE constexpr bool is_tiled(ActivationForm form) {
  return form == ActivationForm::bf16_tiles || form == ActivationForm::s8_tiles;
}

/// A scale_group as long as the row, whatever its length.
inline constexpr int kWholeRow = INT32_MAX;

/// Groups of the s8 forms. x = scale * code, scale = amax / 127 over scale_group columns (the last group of a row may
/// be shorter); sum = the int32 sum of the *codes* of sum_group columns, the one meaning of "sum" in this code base.
/// e4m3: x = scale * value of the code, scale = 2^ceil(log2(amax / 448)) over the row; no sums.
struct ActivationGroups {
  int scale_group = 0;
  int sum_group = 0;  ///< 0: no sums; else a divisor of 32 or a multiple of it

  OCTALANE_INLINE constexpr int64_t scales(int64_t stride) const {
    if (scale_group == 0 || scale_group == kWholeRow) return scale_group == 0 ? 0 : 1;
    return (stride + scale_group - 1) / scale_group;
  }
  OCTALANE_INLINE constexpr int64_t sums(int64_t stride) const { return sum_group == 0 ? 0 : stride / sum_group; }
  friend constexpr bool operator==(const ActivationGroups&, const ActivationGroups&) = default;
};

inline constexpr int kStripTokens = 32;  ///< tokens of one strip of the tiled forms: two matrix tiles of 16
inline constexpr int kStepBytes = 64;    ///< columns of one step of the tiled forms, in bytes: one row of a matrix tile

/// rows x cols, every row padded with zeros to `stride` elements.
/// Tiled forms are strips of 32 tokens, a strip is steps of 64 bytes of columns (32 bfloat16, 64 codes), a step is
/// [token of the strip][64 bytes]: the left operands of a matrix unit, one after another. Tokens past the last are 0.
struct ActivationsView {
  ActivationForm form = ActivationForm::bf16_as_f32;
  ActivationGroups groups;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;              ///< padded columns; tiled: a multiple of 64
  const float* f32 = nullptr;      ///< bf16_as_f32: [rows][stride]
  const uint16_t* bf16 = nullptr;  ///< bf16_tiles: [strip][stride / 32][32 tokens][32 columns]
  const int8_t* codes = nullptr;   ///< s8, e4m3: [rows][stride]; s8_tiles: [strip][stride / 64][32 tokens][64 columns]
  const float* scales = nullptr;   ///< s8 forms, e4m3: [rows][groups.scales(stride)]
  const int32_t* sums = nullptr;   ///< s8 forms: [rows][groups.sums(stride)]
};

/// Where column c of token m lies in `bf16` (columns_per_step 32) or `codes` (64) of a tiled form.
OCTALANE_INLINE constexpr int64_t tiled_index(int64_t m, int64_t c, int64_t stride, int columns_per_step) {
  const int64_t strip = m / kStripTokens, step = c / columns_per_step;
  return ((strip * (stride / columns_per_step) + step) * kStripTokens + m % kStripTokens) * columns_per_step +
         c % columns_per_step;
}

}  // namespace octalane
