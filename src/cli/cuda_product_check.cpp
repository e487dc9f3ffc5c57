#include "cli/cuda_product_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/half.h"
#include "core/planes.h"
#include "weights/pack.h"

namespace octalane::cli {
namespace {

constexpr int64_t kMost = 32;

/// So many indices below `count`, evenly spread, the first and the last among them.
std::vector<int64_t> spread(int64_t count) {
  const int64_t many = std::min(count, kMost);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < many; ++i) indices.push_back(many == 1 ? 0 : i * (count - 1) / (many - 1));
  return indices;
}

template <class T>
Status read(const cuda::Stream& stream, cuda::Address from, std::vector<T>& to) {
  if (const Status s = stream.copy_out(std::as_writable_bytes(std::span(to)), from); !s) return s;
  return stream.synchronize();
}

/// A token as it was multiplied, in fp64.
Expected<std::vector<double>> token(const cuda::Stream& stream, const CheckedProduct& product, int64_t m) {
  const int64_t cols = product.weights.cols, padded = cuda::staged_columns(product.form, cols);
  std::vector<double> out(static_cast<size_t>(cols));
  std::vector<float> scale(1);
  if (product.form.element == cuda::StagedElement::bf16 || product.form.element == cuda::StagedElement::f16) {
    const bool is_f16 = product.form.element == cuda::StagedElement::f16;
    std::vector<uint16_t> bits(static_cast<size_t>(padded));
    if (const Status s = read(stream, product.staged.x + static_cast<cuda::Address>(m * padded * 2), bits); !s)
      return fail_with(s);
    if (is_f16) {
      if (const Status s = read(stream, product.staged.scales + static_cast<cuda::Address>(m * 4), scale); !s)
        return fail_with(s);
    }
    for (int64_t k = 0; k < cols; ++k) {
      double& value = out[static_cast<size_t>(k)];
      if (!is_f16) {
        const int64_t at = k / 16 * 16 + cuda::bf16_position(static_cast<int>(k % 16));
        value = bf16_to_f32(bits[static_cast<size_t>(at)]);
        continue;
      }
      const cuda::Code code = product.form.code;
      const int64_t at = k / 32 * 32 + cuda::f16_position(static_cast<int>(k % 32));
      value = std::ldexp(double{f16_to_f32(bits[static_cast<size_t>(at)])} * scale[0], -cuda::kF16Exponent);
      if (k / 16 % 2 == 1) value /= cuda::f16_second_scale(code);
    }
    return out;
  }
  std::vector<uint8_t> codes(static_cast<size_t>(padded));
  if (const Status s = read(stream, product.staged.x + static_cast<cuda::Address>(m * padded), codes); !s)
    return fail_with(s);
  const int64_t group = product.form.group == 0 ? cols : product.form.group;
  for (int64_t k = 0; k < cols; ++k) {
    if (k % group == 0) {
      const int64_t at = k / group * cuda::padded_tokens(product.staged.tokens) + m;
      if (const Status s = read(stream, product.staged.scales + static_cast<cuda::Address>(at * 4), scale); !s)
        return fail_with(s);
    }
    const uint8_t code = codes[static_cast<size_t>(k)];
    const double value =
        product.form.element == cuda::StagedElement::e4m3 ? e4m3_to_f32(code) : static_cast<int8_t>(code);
    out[static_cast<size_t>(k)] = value * scale[0];
  }
  return out;
}

/// Over the norm of `scale`.
double distance(const std::vector<double>& y, const std::vector<double>& wanted, const std::vector<double>& scale) {
  double off = 0, all = 0;
  for (size_t i = 0; i < y.size(); ++i) off += (y[i] - wanted[i]) * (y[i] - wanted[i]), all += scale[i] * scale[i];
  return std::sqrt(all > 0 ? off / all : off);
}

}  // namespace

Expected<ProductErrors> measure_errors(const cuda::Stream& stream, const CheckedProduct& product) {
  const PackedView& w = product.weights;
  const auto cols = static_cast<size_t>(w.cols);
  const std::vector<int64_t> tokens = spread(product.staged.tokens), rows = spread(w.rows);
  std::vector<std::vector<double>> staged;
  std::vector<std::vector<float>> y;
  for (const int64_t m : tokens) {
    Expected<std::vector<double>> values = token(stream, product, m);
    if (!values) return fail_with(values);
    staged.push_back(std::move(*values));
    y.emplace_back(static_cast<size_t>(w.rows));
    if (const Status s = read(stream, product.y + static_cast<cuda::Address>(m * w.rows * 4), y.back()); !s)
      return fail_with(s);
  }
  std::vector<double> got, on_operands, on_inputs, without;
  Planes planes(w.spec, 1, w.cols);
  std::vector<float> decoded(cols);
  std::vector<double> operand(cols);
  for (const int64_t n : rows) {
    unpack_row(w, n, planes.row(0));
    decode_row(w.spec, planes.row(0), w.cols, decoded.data());
    if (product.restaged != nullptr)
      restaged_row(w, *product.restaged, n, operand.data());
    else
      for (size_t k = 0; k < cols; ++k) operand[k] = product.rounded ? round_to_bf16(decoded[k]) : decoded[k];
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float* x = product.x.data() + tokens[i] * w.cols;
      double exact = 0, whole = 0;
      for (size_t k = 0; k < cols; ++k) {
        exact += staged[i][k] * operand[k];
        whole += double{x[k]} * double{decoded[k]};
      }
      got.push_back(y[i][static_cast<size_t>(n)]);
      on_operands.push_back(exact);
      on_inputs.push_back(whole);
      const auto apart = static_cast<size_t>(std::max<int64_t>(0, product.apart));
      without.push_back(product.apart < 0 ? whole : whole - double{x[apart]} * double{decoded[apart]});
    }
  }
  return ProductErrors{distance(got, on_operands, on_operands), distance(got, on_inputs, on_inputs),
                       distance(got, on_inputs, without)};
}

}  // namespace octalane::cli
