// Fitting a block whose groups have small integer scales under one fp16 scale (and one fp16 scale for the minimums).
#pragma once

#include <cstdint>

namespace octalane::fit {

constexpr int nested_values = 256;

/// What the block can store: the widths that differ between the formats.
struct NestedShape {
  int group;          ///< values under one sub-scale, 16 or 32
  int low, high;      ///< levels
  int sub_low;        ///< smallest integer sub-scale (0 with minimums)
  int sub_high;       ///< largest integer sub-scale, and largest integer minimum
  bool has_minimums;  ///< w = scale * sub_scale * level - bias * sub_min; else the last term is absent
};

struct NestedBlock {
  uint16_t scale = 0;  ///< fp16 bits
  uint16_t bias = 0;
  int8_t sub_scale[16] = {};
  int8_t sub_min[16] = {};
  uint8_t codes[nested_values] = {};  ///< level - low
};

/// Fits `nested_values` values, any floats: NaN counts as 0, magnitudes saturate at what the block can hold.
NestedBlock fit_nested(const float* values, const NestedShape& shape);

}  // namespace octalane::fit
