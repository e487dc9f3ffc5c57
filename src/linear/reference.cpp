#include "linear/reference.h"

#include <algorithm>
#include <cmath>

#include "core/codebook.h"
#include "core/half.h"
#include "core/parallel.h"
#include "core/restage.h"

namespace octalane {
namespace {

/// A row of codebook weights as the int8 lane has it (core/codebook.h).
void codebook_row(const PackedView& w, const PlaneRow& row, std::vector<double>& out) {
  const CodeSpec& code = w.spec.code;
  for (int64_t c = 0; c < w.cols; ++c) {
    int fixed = 0;
    for (int b = 0; b < code.books; ++b) {
      fixed +=
          w.codebooks
              .fixed[(b * kCodewords + row.codes[c / code.vector * code.books + b]) * code.vector + c % code.vector];
    }
    out[static_cast<size_t>(c)] = double{row.scale[c / w.spec.scale.group] * w.codebooks.unit} * codebook_level(fixed);
  }
}

/// Row n of W as the kernel sees it, in fp64: decoded, rounded to bf16, re-encoded, or level x fp32 scale + fp32 bias.
void staged_weight_row(const Linear& linear, const Kernel& kernel, int64_t row, std::vector<double>& out) {
  const int64_t cols = linear.cols();
  const StagedType staged = kernel.staged;
  if (staged == StagedType::bf16) {
    std::vector<float> decoded(static_cast<size_t>(cols));
    linear.decode_row(row, decoded.data());
    if (kernel.exactness == Exactness::unrounded) {
      std::ranges::copy(decoded, out.begin());
      return;
    }
    std::ranges::transform(decoded, out.begin(), [](float w) { return double{round_to_bf16(w)}; });
    return;
  }
  if (restaged(staged)) return restaged_row(linear.weights(), *linear.restaged(), row, out.data());
  const WeightSpec& spec = linear.weights().spec;
  const Planes planes(spec, 1, cols, linear.weights().codebooks.values);
  const PlaneRow p = planes.row(0);
  unpack_row(linear.weights(), row, p);
  if (spec.code.is_codebook()) return codebook_row(linear.weights(), p, out);
  for (int64_t c = 0; c < cols; ++c) {
    const int64_t group = c / spec.scale.group;
    const int64_t at = spec.scale.nested() ? c / spec.scale.super : group;
    float scale = p.scale[at];
    float bias = spec.scale.has_bias ? p.bias[at] : 0.0f;
    if (spec.scale.nested()) {
      scale *= static_cast<float>(p.sub_scale[group]);
      if (spec.scale.has_bias) bias = -(bias * static_cast<float>(p.sub_min[group]));
    }
    const bool e4m3 = spec.code.map == CodeMap::e4m3;
    const double level = e4m3 ? double{e4m3_to_f32(p.codes[c])} : static_cast<double>(spec.code.level(p.codes[c]));
    out[static_cast<size_t>(c)] = double{scale} * level + double{bias};
  }
}

double staged_activation(const ActivationsView& x, int64_t row, int64_t col) {
  if (x.form == ActivationForm::bf16_as_f32) return x.f32[row * x.stride + col];
  if (x.form == ActivationForm::bf16_tiles) return bf16_to_f32(x.bf16[tiled_index(row, col, x.stride, 32)]);
  if (x.form == ActivationForm::e4m3) {
    return double{x.scales[row]} * e4m3_to_f32(static_cast<uint8_t>(x.codes[row * x.stride + col]));
  }
  const int64_t at = x.form == ActivationForm::s8 ? row * x.stride + col : tiled_index(row, col, x.stride, 64);
  return double{x.scales[row * x.groups.scales(x.stride) + col / x.groups.scale_group]} * x.codes[at];
}

struct Distance {
  double difference = 0, reference = 0;
  void add(double got, double wanted) {
    difference += (got - wanted) * (got - wanted);
    reference += wanted * wanted;
  }
  double relative() const { return std::sqrt(reference > 0 ? difference / reference : difference); }
};

std::vector<int64_t> spread_rows(int64_t rows, int64_t max_rows) {
  const int64_t count = std::min(rows, max_rows);
  std::vector<int64_t> picked(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) picked[static_cast<size_t>(i)] = i * rows / count;
  return picked;
}

}  // namespace

void reference_product(const Linear& linear, MatrixView<const float> x, const std::vector<int64_t>& rows, int threads,
                       MatrixView<double> y) {
  parallel_for(threads, static_cast<int64_t>(rows.size()), 1, [&](int, int64_t begin, int64_t end) {
    std::vector<float> w(static_cast<size_t>(linear.cols()));
    for (int64_t i = begin; i < end; ++i) {
      linear.decode_row(rows[static_cast<size_t>(i)], w.data());
      for (int64_t m = 0; m < x.rows; ++m) {
        double sum = 0;
        for (int64_t k = 0; k < x.cols; ++k) sum += double{x(m, k)} * double{w[static_cast<size_t>(k)]};
        y(m, i) = sum;
      }
    }
  });
}

ProductErrors measure_errors(const Context& context, const Linear& linear, Activations& x, MatrixView<const float> y,
                             int64_t max_rows) {
  const MatrixView<const float> source = x.source();
  const Choice choice = linear.choose(context, source.rows);
  const ActivationsView& staged = x.get(choice, linear.weights());
  const std::vector<int64_t> rows = spread_rows(linear.rows(), max_rows);
  const auto count = static_cast<int64_t>(rows.size());

  std::vector<double> total(static_cast<size_t>(source.rows * count)), kernel(total.size());
  std::vector<Distance> of_row(static_cast<size_t>(count));
  reference_product(linear, source, rows, context.threads(), dense_view(total.data(), source.rows, count));
  parallel_for(context.threads(), count, 1, [&](int, int64_t begin, int64_t end) {
    std::vector<double> w(static_cast<size_t>(linear.cols()));
    std::vector<float> decoded(w.size());
    for (int64_t i = begin; i < end; ++i) {
      staged_weight_row(linear, *choice.kernel, rows[static_cast<size_t>(i)], w);
      linear.decode_row(rows[static_cast<size_t>(i)], decoded.data());
      for (size_t k = 0; k < w.size(); ++k) of_row[static_cast<size_t>(i)].add(w[k], decoded[k]);
      for (int64_t m = 0; m < source.rows; ++m) {
        double sum = 0;
        for (int64_t k = 0; k < linear.cols(); ++k) sum += staged_activation(staged, m, k) * w[static_cast<size_t>(k)];
        kernel[static_cast<size_t>(m * count + i)] = sum;
      }
    }
  });

  Distance to_kernel, to_total;
  for (int64_t m = 0; m < source.rows; ++m) {
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(m * count + i);
      to_kernel.add(y(m, rows[static_cast<size_t>(i)]), kernel[at]);
      to_total.add(y(m, rows[static_cast<size_t>(i)]), total[at]);
    }
  }
  Distance to_weights;
  for (const Distance& row : of_row) {
    to_weights.difference += row.difference;
    to_weights.reference += row.reference;
  }
  return {to_kernel.relative(), to_total.relative(), to_weights.relative()};
}

}  // namespace octalane
