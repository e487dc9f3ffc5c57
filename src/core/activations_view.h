// Activations in the form that a kernel multiplies. Quantized once per layer input, used by all its products.
#pragma once

#include <cstdint>

namespace octalane {

enum class ActivationForm : uint8_t {
  bf16_as_f32,  ///< rounded to bfloat16, kept at fp32 width (lanes that multiply in fp32)
  s8,           ///< int8 codes, one fp32 scale per scale_group, sums of codes per sum_group
};

/// Groups of the s8 form. x = scale * code, scale = amax / 127 over scale_group columns (the last group of a row may
/// be shorter); sum = the int32 sum of the *codes* of sum_group columns, the one meaning of "sum" in this code base.
struct ActivationGroups {
  int scale_group = 0;
  int sum_group = 0;
  friend constexpr bool operator==(const ActivationGroups&, const ActivationGroups&) = default;
};

/// rows x cols, every row padded with zeros to `stride` elements.
struct ActivationsView {
  ActivationForm form = ActivationForm::bf16_as_f32;
  ActivationGroups groups;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;             ///< padded columns: elements from row to row of f32 and codes
  const float* f32 = nullptr;     ///< bf16_as_f32: [rows][stride]
  const int8_t* codes = nullptr;  ///< s8: [rows][stride]
  const float* scales = nullptr;  ///< s8: [rows][stride / scale_group]
  const int32_t* sums = nullptr;  ///< s8: [rows][stride / sum_group]
};

}  // namespace octalane
