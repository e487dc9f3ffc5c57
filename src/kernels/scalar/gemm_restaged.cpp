#include <cmath>

#include "core/restage.h"
#include "kernels/scalar/kernels.h"
#include "kernels/scalar/record.h"

namespace octalane::scalar {
namespace {

/// The codes of one weight row, [padded columns]; `s8` holds the scale of each unit, `stride` floats apart.
void stage_row(const PackedView& w, int64_t tile, int row, const float* s8, int64_t unit_cols, int8_t* out) {
  const ScaleSpec& s = w.spec.scale;
  RecordRow planes;
  for (int64_t i = 0; i < w.records; ++i) {
    read_record(w, tile, i, row, planes);
    for (int g = 0; g < w.record.groups; ++g) {
      const int64_t column = i * w.record.cols + int64_t{g} * s.group;
      if (column >= w.cols) return;
      // Units are whole groups: both are powers of two, or the unit is the row.
      const float factor = restage_factor(s8[column / unit_cols * w.order.rows]);
      const int16_t scale = restage_fixed(planes.scale[g], factor);
      const int16_t bias = s.has_bias ? restage_fixed(planes.bias[g], factor) : int16_t{0};
      for (int c = 0; c < s.group; ++c) out[column + c] = restage_code(planes.level[g * s.group + c], scale, bias);
    }
  }
}

/// One weight row after another: staged to scratch, then met by every token. y(m, n) = combine(dot, scales, s8), where
/// dot(i) is the integer product over the i-th `dot_cols` columns, scales are the token's and s8 the row's,
/// order.rows apart.
template <class Combine>
void gemm(const MatmulArgs& args, int64_t unit_cols, int64_t dot_cols, Combine combine) {
  const PackedView& w = args.w;
  const int rows = w.order.rows;
  auto* staged = reinterpret_cast<int8_t*>(args.scratch);
  const int64_t units = (w.cols + unit_cols - 1) / unit_cols;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    for (int row = 0; row < rows && tile * rows + row < w.rows; ++row) {
      const float* s8 = args.restage + tile * units * rows + row;
      stage_row(w, tile, row, s8, unit_cols, staged);
      for (int64_t m = 0; m < args.x.rows; ++m) {
        const int8_t* codes = args.x.codes + m * args.x.stride;
        const auto dot = [&](int64_t i) {
          int32_t sum = 0;
          for (int64_t c = i * dot_cols; c < w.cols && c < (i + 1) * dot_cols; ++c) sum += staged[c] * codes[c];
          return static_cast<float>(sum);
        };
        args.y(m, tile * rows + row) = combine(dot, args.x.scales + m * args.x.groups.scales(args.x.stride), s8);
      }
    }
  }
}

int64_t blocks(int64_t cols) { return (cols + kRestageBlock - 1) / kRestageBlock; }

}  // namespace

void s8_row_gemm(const MatmulArgs& args) {
  gemm(args, kWholeRow, kWholeRow,
       [](auto dot, const float* scales, const float* s8) { return dot(0) * scales[0] * s8[0]; });
}

void s8_xblock_gemm(const MatmulArgs& args) {
  const int64_t cols = args.w.cols;
  gemm(args, kWholeRow, kRestageBlock, [&](auto dot, const float* scales, const float* s8) {
    float t = 0.0f;
    for (int64_t i = 0; i < blocks(cols); ++i) t = std::fma(dot(i), scales[i], t);
    return t * s8[0];
  });
}

void s8_block_gemm(const MatmulArgs& args) {
  const int64_t cols = args.w.cols, rows = args.w.order.rows;
  gemm(args, kRestageBlock, kRestageBlock, [&](auto dot, const float* scales, const float* s8) {
    float y = 0.0f;
    for (int64_t i = 0; i < blocks(cols); ++i) y = std::fma(dot(i) * s8[i * rows], scales[i], y);
    return y;
  });
}

}  // namespace octalane::scalar
