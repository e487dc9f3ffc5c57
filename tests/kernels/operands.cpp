#include "kernels/operands.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/half.h"
#include "core/restage.h"
#include "weights/restage.h"

namespace octalane::test {
namespace {

constexpr float kCanary = 1234567.0f;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

CodeSpec offset_code(uint8_t bits, int16_t zero) { return {.map = CodeMap::offset, .bits = bits, .zero = zero}; }

CodeSpec table_code(std::array<int8_t, 16> table) { return {.map = CodeMap::table, .bits = 4, .table = table}; }

CodeSpec codebook_code(uint8_t books, uint8_t vector) {
  return {.map = CodeMap::codebook, .bits = 8, .books = books, .vector = vector};
}

/// The one set of codebooks that all weights of such a code have here; the second book refines the first.
const float* codebooks_of(const CodeSpec& code) {
  static std::map<std::pair<int, int>, std::vector<float>> made;
  std::vector<float>& values = made[{code.books, code.vector}];
  std::mt19937 random(code.vector);
  std::normal_distribution<float> normal;
  for (int i = 0; values.size() < static_cast<size_t>(code.books) * kCodewords * code.vector; ++i) {
    const float value = normal(random) * (i < kCodewords * code.vector ? 1.0f : 0.3f);
    values.push_back(f16_to_f32(f32_to_f16(value)));
  }
  return values.data();
}

std::vector<NamedSpec> make_specs() {
  const ScaleSpec f16_32{.type = ScaleType::f16, .group = 32};
  const auto biased = [](ScaleSpec scale) {
    scale.has_bias = true;
    return scale;
  };
  const auto nested = [](int16_t group) { return ScaleSpec{.type = ScaleType::f16, .group = group, .super = 256}; };
  const auto flat = [](ScaleType type, int16_t group) { return ScaleSpec{.type = type, .group = group}; };
  const CodeSpec nonlinear = table_code({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});
  const CodeSpec e2m1 = table_code({0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12});
  return {
      {"u4_zero8_g32_f16", {offset_code(4, 8), f16_32}},
      {"u4_g32_f16_bias", {offset_code(4, 0), biased(f16_32)}},
      {"u5_zero16_g32_f16", {offset_code(5, 16), f16_32}},
      {"u5_g32_f16_bias", {offset_code(5, 0), biased(f16_32)}},
      {"u8_zero128_g32_f16", {offset_code(8, 128), f16_32}},
      {"u2_g16_nested_bias", {offset_code(2, 0), biased(nested(16))}},
      {"u3_zero4_g16_nested", {offset_code(3, 4), nested(16)}},
      {"u4_g32_nested_bias", {offset_code(4, 0), biased(nested(32))}},
      {"u5_g32_nested_bias", {offset_code(5, 0), biased(nested(32))}},
      {"u6_zero32_g16_nested", {offset_code(6, 32), nested(16)}},
      {"table_g32_f16", {nonlinear, f16_32}},
      {"table_g32_nested", {nonlinear, nested(32)}},
      {"table_g32_e8m0half", {e2m1, flat(ScaleType::e8m0_half, 32)}},
      {"table_g32_e8m0", {e2m1, flat(ScaleType::e8m0, 32)}},
      {"u4_g64_bf16_bias", {offset_code(4, 0), biased(flat(ScaleType::bf16, 64))}},
      {"u4_g128_f32_bias", {offset_code(4, 0), biased(flat(ScaleType::f32, 128))}},
      {"u8_g64_bf16_bias", {offset_code(8, 0), biased(flat(ScaleType::bf16, 64))}},
      {"u6_zero3_g16_f32_bias", {offset_code(6, 3), biased(flat(ScaleType::f32, 16))}},
      {"u3_g128_f16_bias", {offset_code(3, 0), biased(flat(ScaleType::f16, 128))}},
      {"e4m3_g32_e8m0", {{.map = CodeMap::e4m3, .bits = 8}, flat(ScaleType::e8m0, 32)}},
      {"e4m3_g64_f32", {{.map = CodeMap::e4m3, .bits = 8}, flat(ScaleType::f32, 64)}},
      {"e4m3_g16_bf16_bias", {{.map = CodeMap::e4m3, .bits = 8}, biased(flat(ScaleType::bf16, 16))}},
      {"m2v8_g128", {codebook_code(2, 8), flat(ScaleType::f16, 128)}},
      {"m1v8_g64", {codebook_code(1, 8), flat(ScaleType::f16, 64)}},
      {"m2v4_g32", {codebook_code(2, 4), flat(ScaleType::f16, 32)}},
      {"m1v4_g128", {codebook_code(1, 4), flat(ScaleType::f16, 128)}},
      {"f16", {{.map = CodeMap::f16, .bits = 16}, {}}},
      {"bf16", {{.map = CodeMap::bf16, .bits = 16}, {}}},
      {"f32", {{.map = CodeMap::f32, .bits = 32}, {}}},
  };
}

/// A value that the scale type can hold, of either sign where it can.
float scale_value(ScaleType type, std::mt19937& random) {
  std::uniform_real_distribution<float> magnitude(0.25f, 1.0f);
  const float value = (random() & 1u) != 0 ? magnitude(random) : -magnitude(random);
  switch (type) {
    case ScaleType::f16: return f16_to_f32(f32_to_f16(value));
    case ScaleType::bf16: return bf16_to_f32(f32_to_bf16(value));
    case ScaleType::e8m0:
    case ScaleType::e8m0_half: return std::ldexp(1.0f, static_cast<int>(random() % 5u) - 3);
    default: return value;
  }
}

/// Any code that stands for a number.
uint8_t code(const CodeSpec& spec, std::mt19937& random) {
  const auto any = static_cast<uint8_t>(random() & ((1u << spec.bits) - 1u));
  return spec.map == CodeMap::e4m3 && (any & 0x7Fu) == 0x7F ? any ^ 1u : any;
}

void fill_floats(const CodeSpec& code, int64_t cols, std::mt19937& random, std::byte* out) {
  std::normal_distribution<float> normal;
  for (int64_t c = 0; c < cols; ++c) {
    const float value = normal(random);
    const uint16_t half = code.map == CodeMap::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (code.map == CodeMap::f32) {
      std::memcpy(out + 4 * c, &value, sizeof value);
    } else {
      std::memcpy(out + 2 * c, &half, sizeof half);
    }
  }
}

}  // namespace

const std::vector<NamedSpec>& all_specs() {
  static const std::vector<NamedSpec> specs = make_specs();
  return specs;
}

int64_t column_unit(const WeightSpec& spec) {
  if (spec.code.is_float()) return 1;
  if (spec.code.is_codebook()) return kBlockCols;
  return spec.scale.nested() ? spec.scale.super : spec.scale.group;
}

Planes random_planes(const WeightSpec& spec, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  Planes planes(spec, rows, cols, spec.code.is_codebook() ? codebooks_of(spec.code) : nullptr);
  const ScaleSpec& s = spec.scale;
  for (int64_t r = 0; r < rows; ++r) {
    const PlaneRow row = planes.row(r);
    if (spec.code.is_float()) {
      fill_floats(spec.code, cols, random, row.elements);
      continue;
    }
    for (int64_t c = 0; c < planes.codes_per_row(); ++c) row.codes[c] = code(spec.code, random);
    for (int64_t g = 0; g < planes.scales_per_row(); ++g) {
      row.scale[g] = scale_value(s.type, random);
      if (s.has_bias) row.bias[g] = scale_value(s.type, random);
    }
    if (!s.nested()) continue;
    for (int64_t g = 0; g < cols / s.group; ++g) {
      // Sub-scales with a bias are six bits without a sign, others eight with one.
      row.sub_scale[g] = static_cast<int8_t>(s.has_bias ? random() % 64u : random());
      if (s.has_bias) row.sub_min[g] = static_cast<int8_t>(random() % 64u);
    }
  }
  return planes;
}

std::vector<float> decode(const Planes& planes) {
  std::vector<float> out(static_cast<size_t>(planes.rows() * planes.cols()));
  for (int64_t r = 0; r < planes.rows(); ++r) {
    decode_row(planes.spec(), planes.row(r), planes.cols(), out.data() + r * planes.cols());
  }
  return out;
}

Packed::Packed(const Planes& planes, TileOrder order) {
  const int64_t cols = planes.cols();
  const WeightSpec& spec = planes.spec();
  packed_ = PackedWeights::pack(
      spec, order, planes.rows(), cols, 1,
      [&](int64_t r, const PlaneRow& out) {
        const PlaneRow from = planes.row(r);
        const auto copy = [](auto* to, const auto* source, int64_t count) {
          if (source != nullptr) std::memcpy(to, source, static_cast<size_t>(count) * sizeof *to);
        };
        copy(out.codes, from.codes, planes.codes_per_row());
        copy(out.elements, from.elements, cols * spec.code.bits / 8);
        if (spec.code.is_float()) return;
        copy(out.scale, from.scale, planes.scales_per_row());
        copy(out.bias, from.bias, planes.scales_per_row());
        copy(out.sub_scale, from.sub_scale, cols / spec.scale.group);
        copy(out.sub_min, from.sub_min, cols / spec.scale.group);
      },
      planes.codebook_values());
  view_ = packed_.view();
  data_ = AlignedBuffer<std::byte>(packed_.bytes());
  if (packed_.bytes() > 0) std::memcpy(data_.data(), view_.data, static_cast<size_t>(packed_.bytes()));
  view_.data = data_.data();
  poison_rows_past_the_end();
}

void Packed::poison_rows_past_the_end() {
  const RecordLayout& layout = view_.record;
  const int rows = view_.order.rows;
  const CodeSpec& code = view_.spec.code;
  const int code_unit = code.is_float() ? code.bits / 8 : code.is_codebook() ? code.books : 4;  // bytes side by side
  const int scale_unit = bytes_of(view_.spec.scale.type);
  const auto poison = [&](std::byte* plane, int64_t bytes, int unit, int64_t first) {
    if (unit == 0) return;
    for (int64_t at = 0; at < bytes; at += rows * unit) {
      std::memset(plane + at + first * unit, 0xFF, static_cast<size_t>((rows - first) * unit));
    }
  };
  const int64_t first = view_.rows % rows;
  if (first == 0) return;
  for (int64_t r = 0; r < view_.records; ++r) {
    std::byte* record = bytes(view_.tiles - 1, r);
    if (view_.spec.code.is_float()) {
      poison(record, layout.bytes, code_unit, first);
      continue;
    }
    poison(record, layout.scale, code_unit, first);
    poison(record + layout.scale, layout.sub_scale - layout.scale, scale_unit, first);
    poison(record + layout.sub_scale, layout.bytes - layout.sub_scale, 1, first);
  }
}

Activations::Activations(int64_t rows, int64_t cols, int64_t gap)
    : rows_(rows), cols_(cols), gap_(gap), data_(static_cast<size_t>(rows * (cols + gap)), kNaN) {}

Activations Activations::random(int64_t rows, int64_t cols, uint32_t seed) {
  Activations x(rows, cols, 5);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < cols; ++k) x.at(m, k) = normal(random);
  }
  return x;
}

Formed::Formed(const Quantizer& quantizer, ActivationGroups groups, MatrixView<const float> x, int64_t padded_cols) {
  const ActivationForm form = quantizer.form;
  const auto round_up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; };
  if (is_tiled(form)) padded_cols = round_up(padded_cols, kStepBytes);
  const int64_t extra = 128;  // a whole number of groups of any size
  const int64_t stride = padded_cols + extra;
  const int64_t rows = is_tiled(form) ? round_up(x.rows, kStripTokens) : x.rows;
  const int64_t scales = groups.scales(stride), sums = groups.sums(stride);
  f32_ = AlignedBuffer<float>(form == ActivationForm::bf16_as_f32 ? rows * stride : 0);
  bf16_ = AlignedBuffer<uint16_t>(form == ActivationForm::bf16_tiles ? rows * stride : 0);
  codes_ = AlignedBuffer<int8_t>(has_codes(form) ? rows * stride : 0);
  scales_ = AlignedBuffer<float>(has_codes(form) ? x.rows * scales : 0);
  sums_ = AlignedBuffer<int32_t>(has_codes(form) ? x.rows * sums : 0);
  if (is_tiled(form)) {
    std::fill_n(bf16_.data(), bf16_.size(), uint16_t{0});
    std::fill_n(codes_.data(), codes_.size(), int8_t{0});
  }
  quantizer.run({.x = x,
                 .groups = groups,
                 .stride = stride,
                 .row_begin = 0,
                 .row_end = x.rows,
                 .f32 = f32_.data(),
                 .codes = codes_.data(),
                 .scales = scales_.data(),
                 .sums = sums_.data(),
                 .bf16 = bf16_.data()});
  view_ = {.form = form,
           .groups = groups,
           .rows = x.rows,
           .cols = x.cols,
           .stride = stride,
           .f32 = f32_.data(),
           .bf16 = bf16_.data(),
           .codes = codes_.data(),
           .scales = scales_.data(),
           .sums = sums_.data()};
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = padded_cols; k < stride; ++k) {
      switch (form) {
        case ActivationForm::bf16_as_f32: f32_[m * stride + k] = kNaN; break;
        case ActivationForm::bf16_tiles: bf16_[tiled_index(m, k, stride, 32)] = 0x7FFF; break;
        case ActivationForm::s8: codes_[m * stride + k] = -128; break;
        case ActivationForm::s8_tiles: codes_[tiled_index(m, k, stride, 64)] = -128; break;
        case ActivationForm::e4m3: codes_[m * stride + k] = 0x7F; break;
      }
    }
    if (!is_s8(form) || m >= x.rows) continue;
    for (int64_t g = groups.scales(padded_cols); g < scales; ++g) scales_[m * scales + g] = kNaN;
    for (int64_t g = groups.sums(padded_cols); g < sums; ++g) sums_[m * sums + g] = INT32_MAX / 512;
  }
}

ActivationsView Formed::head(int64_t rows) const {
  ActivationsView view = view_;
  view.rows = rows;
  return view;
}

double Formed::value(int64_t m, int64_t k) const {
  const int64_t at = m * view_.stride + k;
  if (view_.form == ActivationForm::bf16_as_f32) return f32_[at];
  if (view_.form == ActivationForm::bf16_tiles) return bf16_to_f32(bf16_[tiled_index(m, k, view_.stride, 32)]);
  if (view_.form == ActivationForm::e4m3) return scale(m, k) * e4m3_to_f32(static_cast<uint8_t>(code(m, k)));
  return scale(m, k) * code(m, k);
}

int8_t Formed::code(int64_t m, int64_t k) const {
  return codes_[is_tiled(view_.form) ? tiled_index(m, k, view_.stride, 64) : m * view_.stride + k];
}

double Formed::scale(int64_t m, int64_t k) const {
  return scales_[m * view_.groups.scales(view_.stride) + k / view_.groups.scale_group];
}

Outputs::Outputs(int64_t rows, int64_t cols, int64_t gap)
    : rows_(rows), cols_(cols), gap_(gap), data_(static_cast<size_t>(gap + rows * (cols + gap)), kCanary) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < cols; ++n) view()(m, n) = kNaN;
  }
}

bool Outputs::canaries_intact() const {
  for (int64_t i = 0; i < static_cast<int64_t>(data_.size()); ++i) {
    const bool canary = i % (cols_ + gap_) < gap_;
    if (canary && data_[static_cast<size_t>(i)] != kCanary) return false;
  }
  return true;
}

Problem problem_of(const Kernel& kernel, const PackedView& w, int64_t tokens) {
  return {.tokens = tokens, .rows = w.rows, .cols = w.cols, .weights = w.spec, .staged = kernel.staged};
}

std::vector<float> restage_for(const Kernel& kernel, const PackedView& w) {
  if (!restaged(kernel.staged)) return {};
  const Restaged made = restage(w, kernel.staged, 1);
  return {made.scales.data(), made.scales.data() + made.scales.size()};
}

void run_in_parts(const Kernel& kernel, const PackedView& w, const ActivationsView& x, MatrixView<float> y,
                  const std::vector<float>& restage) {
  const AlignedBuffer<std::byte> scratch(kernel.scratch_bytes(problem_of(kernel, w, x.rows)));
  int64_t end = w.tiles;
  for (int64_t part = 1; end > 0; ++part) {
    const int64_t begin = std::max<int64_t>(0, end - part);
    std::memset(scratch.data(), 0xFF, static_cast<size_t>(scratch.size()));
    kernel.run({.w = w,
                .x = x,
                .y = y,
                .tile_begin = begin,
                .tile_end = end,
                .scratch = scratch.data(),
                .restage = restage.empty() ? nullptr : restage.data()});
    end = begin;
  }
}

bool same_bits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace octalane::test
