#include <cmath>

#include "kernels/scalar/kernels.h"
#include "kernels/scalar/record.h"

namespace octalane::scalar {
namespace {

/// fma(w, x, y) rounded once. The product of two bfloat16 values is exact in double. The sum needs more than 53 bits
/// only when one addend is too small beside the other to bring it near the middle between two floats, so the second
/// rounding sees what a fused one would. std::fma is slow where the processor lacks the instruction.
float fma_bf16(float w, float x, float y) {
  return static_cast<float>(static_cast<double>(w) * static_cast<double>(x) + static_cast<double>(y));
}

/// One weight row of one record as bfloat16: each operation of ScaleSpec rounded once, then one rounding to 16 bits.
class Bf16Record {
 public:
  void read(const PackedView& w, int64_t tile, int64_t record, int row) {
    const ScaleSpec& s = w.spec.scale;
    RecordRow planes;
    read_record(w, tile, record, row, planes);
    cols_ = w.record.cols;
    for (int c = 0; c < cols_; ++c) {
      float value = planes.element[c];
      if (!w.spec.code.is_float()) {
        const float level = w.spec.code.has_integer_levels() ? static_cast<float>(planes.level[c]) : value;
        value = planes.scale[c / s.group] * level;
        if (s.has_bias) value += planes.bias[c / s.group];
      }
      weight_[c] = round_to_bf16(value);
    }
  }

  /// y + the product with token m, whose columns start at `column`.
  float add_product(const ActivationsView& x, int64_t m, int64_t column, float y) const {
    const float* from = x.f32 + m * x.stride + column;
    for (int c = 0; c < cols_; ++c) y = fma_bf16(weight_[c], from[c], y);
    return y;
  }

 private:
  int cols_ = 0;
  float weight_[kMaxRecordCols];
};

int32_t dot(const int* levels, const int8_t* codes, int g, int group) {
  int32_t sum = 0;
  for (int c = g * group; c < (g + 1) * group; ++c) sum += levels[c] * codes[c];
  return sum;
}

class S8GroupRecord {
 public:
  void read(const PackedView& w, int64_t tile, int64_t record, int row) {
    scale_ = w.spec.scale;
    cols_ = w.record.cols;
    unit_ = w.spec.code.is_codebook() ? w.codebooks.unit : 1.0f;
    read_record(w, tile, record, row, planes_);
  }

  float add_product(const ActivationsView& x, int64_t m, int64_t column, float y) const {
    const int8_t* codes = x.codes + m * x.stride + column;
    const float* scales = x.scales + (m * x.stride + column) / x.groups.scale_group;
    const int32_t* sums = x.sums + (m * x.stride + column) / x.groups.sum_group;
    for (int begin = 0; begin < cols_; begin += x.groups.scale_group) {
      float t = 0.0f;
      for (int g = begin / scale_.group; g < (begin + x.groups.scale_group) / scale_.group; ++g) {
        if (scale_.has_bias) t = std::fma(planes_.bias[g], static_cast<float>(sums[g]), t);
        t = std::fma(planes_.scale[g] * unit_, static_cast<float>(dot(planes_.level, codes, g, scale_.group)), t);
      }
      y = std::fma(scales[begin / x.groups.scale_group], t, y);
    }
    return y;
  }

 private:
  ScaleSpec scale_;
  float unit_ = 1.0f;  ///< of levels
  int cols_ = 0;
  RecordRow planes_;
};

/// A record is one super-group.
class S8NestedRecord {
 public:
  void read(const PackedView& w, int64_t tile, int64_t record, int row) {
    scale_ = w.spec.scale;
    groups_ = w.record.groups;
    read_record(w, tile, record, row, planes_);
    read_super(w, tile, record, row, super_);
  }

  float add_product(const ActivationsView& x, int64_t m, int64_t column, float y) const {
    const int8_t* codes = x.codes + m * x.stride + column;
    const int32_t* sums = x.sums + (m * x.stride + column) / scale_.group;
    int32_t products = 0, minima = 0;
    for (int g = 0; g < groups_; ++g) {
      products += super_.sub_scale[g] * dot(planes_.level, codes, g, scale_.group);
      if (scale_.has_bias) minima += super_.sub_min[g] * sums[g];
    }
    float t = super_.scale * static_cast<float>(products);
    if (scale_.has_bias) t = std::fma(-super_.bias, static_cast<float>(minima), t);
    return std::fma(x.scales[m * x.groups.scales(x.stride) + column / scale_.super], t, y);
  }

 private:
  ScaleSpec scale_;
  int groups_ = 0;
  RecordRow planes_;
  SuperRow super_;
};

/// Every record is staged once and meets all tokens; y carries their sums from record to record.
template <class Record>
void gemm(const MatmulArgs& args) {
  Record record;
  for_each_row(args, [&](int64_t n, int64_t tile, int r) {
    for (int64_t m = 0; m < args.x.rows; ++m) args.y(m, n) = 0.0f;
    for (int64_t i = 0; i < args.w.records; ++i) {
      record.read(args.w, tile, i, r);
      for (int64_t m = 0; m < args.x.rows; ++m) {
        args.y(m, n) = record.add_product(args.x, m, i * args.w.record.cols, args.y(m, n));
      }
    }
  });
}

/// One token: its sum stays in a register along the row.
template <class Record>
void gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  Record record;
  for_each_row(args, [&](int64_t n, int64_t tile, int r) {
    float y = 0.0f;
    for (int64_t i = 0; i < args.w.records; ++i) {
      record.read(args.w, tile, i, r);
      y = record.add_product(args.x, 0, i * args.w.record.cols, y);
    }
    args.y(0, n) = y;
  });
}

}  // namespace

void bf16_gemm(const MatmulArgs& args) { gemm<Bf16Record>(args); }
void bf16_gemv(const MatmulArgs& args) { gemv<Bf16Record>(args); }
void s8_group_gemm(const MatmulArgs& args) { gemm<S8GroupRecord>(args); }
void s8_group_gemv(const MatmulArgs& args) { gemv<S8GroupRecord>(args); }
void s8_nested_gemm(const MatmulArgs& args) { gemm<S8NestedRecord>(args); }
void s8_nested_gemv(const MatmulArgs& args) { gemv<S8NestedRecord>(args); }

}  // namespace octalane::scalar
