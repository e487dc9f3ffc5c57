#include "core/planes.h"

#include <cstring>

#include "core/half.h"

namespace octalane {
namespace {

void decode_float_row(const CodeSpec& code, const std::byte* elements, int64_t cols, float* out) {
  if (code.map == CodeMap::f32) {
    std::memcpy(out, elements, static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < cols; ++c) {
    uint16_t bits = 0;
    std::memcpy(&bits, elements + 2 * c, sizeof bits);
    out[c] = code.map == CodeMap::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

void decode_codebook_row(const WeightSpec& spec, const PlaneRow& row, int64_t cols, float* out) {
  const int books = spec.code.books, vector = spec.code.vector;
  for (int64_t j = 0; j < cols / vector; ++j) {
    const float scale = row.scale[j * vector / spec.scale.group];
    for (int t = 0; t < vector; ++t) {
      float level = 0.0f;
      for (int b = 0; b < books; ++b) {
        level += row.codebooks[(b * kCodewords + row.codes[j * books + b]) * vector + t];
      }
      out[j * vector + t] = scale * level;
    }
  }
}

}  // namespace

Planes::Planes(const WeightSpec& spec, int64_t rows, int64_t cols, const float* codebooks)
    : spec_(spec), codebooks_(codebooks), rows_(rows), cols_(cols), code_stride_(0), scales_(0), groups_(0) {
  if (spec.code.is_float()) {
    elements_.resize(static_cast<size_t>(rows * cols * spec.code.bits / 8));
    return;
  }
  code_stride_ = spec.code.is_codebook() ? spec.code.code_bytes(cols) : cols;
  codes_.resize(static_cast<size_t>(rows * code_stride_));
  groups_ = (cols + spec.scale.group - 1) / spec.scale.group;
  scales_ = spec.scale.nested() ? cols / spec.scale.super : groups_;
  scale_.resize(static_cast<size_t>(rows * scales_));
  if (spec.scale.has_bias) bias_.resize(scale_.size());
  if (spec.scale.nested()) {
    sub_scale_.resize(static_cast<size_t>(rows * groups_));
    if (spec.scale.has_bias) sub_min_.resize(sub_scale_.size());
  }
}

PlaneRow Planes::row(int64_t r) {
  const auto at = [r](auto& plane, int64_t stride) { return plane.empty() ? nullptr : plane.data() + r * stride; };
  return {at(codes_, code_stride_),
          at(elements_, cols_ * spec_.code.bits / 8),
          at(scale_, scales_),
          at(bias_, scales_),
          at(sub_scale_, groups_),
          at(sub_min_, groups_),
          codebooks_};
}

void decode_row(const WeightSpec& spec, const PlaneRow& row, int64_t cols, float* out) {
  if (spec.code.is_float()) return decode_float_row(spec.code, row.elements, cols, out);
  if (spec.code.is_codebook()) return decode_codebook_row(spec, row, cols, out);
  const ScaleSpec& s = spec.scale;
  for (int64_t g = 0; g < cols / s.group; ++g) {
    const int64_t at = s.nested() ? g * s.group / s.super : g;
    float scale = row.scale[at];
    float bias = s.has_bias ? row.bias[at] : 0.0f;
    if (s.nested()) {
      scale *= static_cast<float>(row.sub_scale[g]);
      if (s.has_bias) bias = -(bias * static_cast<float>(row.sub_min[g]));
    }
    for (int64_t c = g * s.group; c < (g + 1) * s.group; ++c) {
      const float level = spec.code.map == CodeMap::e4m3 ? e4m3_to_f32(row.codes[c])
                                                         : static_cast<float>(spec.code.level(row.codes[c]));
      const float product = scale * level;
      out[c] = s.has_bias ? product + bias : product;
    }
  }
}

}  // namespace octalane
