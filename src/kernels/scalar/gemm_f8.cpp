#include <array>
#include <cmath>

#include "core/restage.h"
#include "kernels/scalar/kernels.h"
#include "kernels/scalar/record.h"

namespace octalane::scalar {
namespace {

/// The values of all E4M3 codes.
class Values {
 public:
  Values() {
    for (int code = 0; code < 256; ++code) value_[static_cast<size_t>(code)] = e4m3_to_f32(static_cast<uint8_t>(code));
  }
  float operator[](int8_t code) const { return value_[static_cast<uint8_t>(code)]; }

 private:
  std::array<float, 256> value_;
};

float level(const PackedView& w, const RecordRow& planes, int c) {
  return w.spec.code.map == CodeMap::e4m3 ? planes.element[c] : static_cast<float>(planes.level[c]);
}

/// The weights of one row in units of `unit`, [w.cols].
void stage_row(const PackedView& w, int64_t tile, int row, float unit, float* out) {
  RecordRow planes;
  for (int64_t i = 0; i < w.records; ++i) {
    read_record(w, tile, i, row, planes);
    for (int c = 0; c < w.record.cols && i * w.record.cols + c < w.cols; ++c) {
      const uint8_t code = restage_e4m3(level(w, planes, c), planes.scale[c / w.spec.scale.group], unit);
      out[i * w.record.cols + c] = e4m3_to_f32(code);
    }
  }
}

}  // namespace

void f8_group_gemm(const MatmulArgs& args) {
  const PackedView& w = args.w;
  const int group = w.spec.scale.group;
  const Values value;
  RecordRow planes;
  for_each_row(args, [&](int64_t n, int64_t tile, int row) {
    for (int64_t m = 0; m < args.x.rows; ++m) args.y(m, n) = 0.0f;
    for (int64_t i = 0; i < w.records; ++i) {
      read_record(w, tile, i, row, planes);
      for (int64_t m = 0; m < args.x.rows; ++m) {
        const int8_t* x = args.x.codes + m * args.x.stride + i * w.record.cols;
        float y = args.y(m, n);
        for (int g = 0; g < w.record.groups; ++g) {
          float t = 0.0f;
          for (int c = g * group; c < (g + 1) * group; ++c) t += level(w, planes, c) * value[x[c]];
          y = std::fma(t, planes.scale[g], y);
        }
        args.y(m, n) = y;
      }
    }
    for (int64_t m = 0; m < args.x.rows; ++m) args.y(m, n) *= args.x.scales[m];
  });
}

void f8_row_gemm(const MatmulArgs& args) {
  const PackedView& w = args.w;
  const Values value;
  auto* staged = reinterpret_cast<float*>(args.scratch);
  for_each_row(args, [&](int64_t n, int64_t tile, int row) {
    const float unit = args.restage[n];
    stage_row(w, tile, row, unit, staged);
    for (int64_t m = 0; m < args.x.rows; ++m) {
      const int8_t* x = args.x.codes + m * args.x.stride;
      float sum = 0.0f;
      for (int64_t begin = 0; begin < w.cols; begin += kPromotedCols) {
        float t = 0.0f;
        for (int64_t c = begin; c < w.cols && c < begin + kPromotedCols; ++c) t += staged[c] * value[x[c]];
        sum += t;
      }
      args.y(m, n) = sum * args.x.scales[m] * unit;
    }
  });
}

}  // namespace octalane::scalar
