// Products of a device beside the scalar ones: what lies around outputs must stay, and each output be what the lane
// promises.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/half.h"
#include "core/restage.h"
#include "cuda/host_tokens.h"
#include "cuda/kernel_weights.h"
#include "cuda/product.h"
#include "kernels/all_kernels.h"
#include "kernels/operands.h"
#include "kernels/oracle.h"

namespace octalane::test {

struct ProductDevice {
  const cuda::Session& session;
  const cuda::Products& products;
  const cuda::Stream& stream;
};

/// One product of a kernel on the device beside the scalar one.
class DeviceProduct {
 public:
  DeviceProduct(const ProductDevice& on, const cuda::GemmKernel& kernel, const Planes& planes,
                MatrixView<const float> x)
      : on_(on),
        kernel_(kernel),
        reference_(scalar_gemm(kernel.staged)),
        packed_(planes, reference_.order),
        formed_(quantizer(*find_isa("scalar"), reference_.form), reference_.groups(planes.spec()), x,
                packed_.view().padded_cols()) {}

  /// fp32 outputs [tokens][rows]; empty when something failed.
  std::vector<float> run(bool f32, cuda::ProductOptions options = {128, 0}) {
    std::optional<Restaged> made;
    if (restaged(kernel_.staged)) made = restage(packed_.view(), kernel_.staged, 1);
    auto records = cuda::pack_records(packed_.view(), kernel_.staged, made ? &*made : nullptr, 2);
    EXPECT_TRUE(records) << records.error().message;
    if (!records) return {};
    auto weights = cuda::DeviceWeights::upload(on_.session, std::move(*records));
    EXPECT_TRUE(weights) << weights.error().message;
    const HostTokens tokens = host_tokens(formed_.view(), weights->about().padded_cols);
    const cuda::Buffer x = upload(tokens.x), scales = upload(tokens.scales), sums = upload(tokens.sums);
    const cuda::Buffer minima = upload(tokens.minima);
    const int64_t m = formed_.view().rows, n = packed_.view().rows;
    // A stride with a gap, of multiples of 16 bytes; a row before and after.
    const int64_t stride = f32 ? n + 3 : (n + 15) / 8 * 8, width = f32 ? 4 : 2;
    std::vector<std::byte> y(static_cast<size_t>((m + 2) * stride * width), std::byte{0xFF});
    const cuda::Buffer device_y = upload(y);
    const Status launched = on_.products.multiply(
        kernel_, *weights, {m, x.address(), scales.address(), sums.address(), minima.address()},
        {device_y.address() + static_cast<cuda::Address>(stride * width), f32, stride}, on_.stream, options);
    EXPECT_TRUE(launched) << launched.error().message;
    const Status done = on_.stream.synchronize();
    EXPECT_TRUE(done) << done.error().message;
    if (!done) return {};
    const Status copied = on_.session.copy_out(y, device_y);
    EXPECT_TRUE(copied) << copied.error().message;
    std::vector<float> out;
    for (int64_t r = 0; r < m + 2; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        const std::byte* at = &y[static_cast<size_t>((r * stride + c) * width)];
        if (r == 0 || r == m + 1 || c >= n) {
          for (int64_t b = 0; b < width; ++b)
            EXPECT_EQ(at[b], std::byte{0xFF}) << "written outside: " << r << ", " << c;
          continue;
        }
        uint32_t bits = 0;
        std::memcpy(&bits, at, static_cast<size_t>(width));
        EXPECT_NE(bits, f32 ? 0xFFFFFFFFu : 0xFFFFu) << "not written: " << r - 1 << ", " << c;
        out.push_back(f32 ? std::bit_cast<float>(bits) : bf16_to_f32(static_cast<uint16_t>(bits)));
      }
    }
    return out;
  }

  Outputs reference() {
    Outputs y(formed_.view().rows, packed_.view().rows, 1);
    run_in_parts(reference_, packed_.view(), formed_.view(), y.view(), restage_for(reference_, packed_.view()));
    return y;
  }
  const Formed& formed() const { return formed_; }
  int64_t tokens() const { return formed_.view().rows; }
  int64_t rows() const { return packed_.view().rows; }

 private:
  template <class T>
  cuda::Buffer upload(const std::vector<T>& values) const {
    auto buffer = on_.session.upload(std::as_bytes(std::span(values)));
    EXPECT_TRUE(buffer) << buffer.error().message;
    return std::move(*buffer);
  }
  ProductDevice on_;
  const cuda::GemmKernel& kernel_;
  const Kernel& reference_;
  Packed packed_;
  Formed formed_;
};

inline bool is_exact(const cuda::GemmKernel& kernel) {
  return kernel.staged != StagedType::bf16 && info(kernel.staged).lane != Lane::f8;
}

/// The tensor cores' sums of E4M3 products keep about 14 bits: every addition of 128 columns may lose 2^-13 of the
/// largest magnitude among its addends, on top of what fp32 loses.
inline double lost_by_e4m3(const Planes& planes, const Formed& x, int64_t m, int64_t n, int64_t promote) {
  std::vector<float> w(static_cast<size_t>(planes.cols()));
  decode_row(planes.spec(), planes.row(n), planes.cols(), w.data());
  double lost = 0;
  for (int64_t begin = 0; begin < planes.cols(); begin += promote) {
    double magnitude = 0;
    for (int64_t k = begin; k < std::min(planes.cols(), begin + promote); ++k) {
      magnitude += std::fabs(double{w[static_cast<size_t>(k)]} * x.value(m, k));
    }
    lost += magnitude * static_cast<double>(promote) / 32 * 0x1p-13;
  }
  return lost;
}

/// The same where every 32 columns, one instruction, are added to fp32 totals: products are aligned to the largest, of
/// which 2^-13 remains, and so many bits are kept of their sum.
inline double lost_by_e4m3_groups(const Planes& planes, const Formed& x, int64_t m, int64_t n) {
  std::vector<float> w(static_cast<size_t>(planes.cols()));
  decode_row(planes.spec(), planes.row(n), planes.cols(), w.data());
  double lost = 0;
  for (int64_t begin = 0; begin < planes.cols(); begin += 32) {
    double magnitude = 0, largest = 0, cut = 0;
    const auto product = [&](int64_t k) { return std::fabs(double{w[static_cast<size_t>(k)]} * x.value(m, k)); };
    for (int64_t k = begin; k < begin + 32; ++k) largest = std::max(largest, product(k)), magnitude += product(k);
    for (int64_t k = begin; k < begin + 32; ++k) cut += std::min(product(k), largest * 0x1p-13);
    lost += cut + magnitude * 0x1p-13;
  }
  return lost;
}

inline void expect_right(const cuda::GemmKernel& kernel, const Planes& planes, DeviceProduct& product,
                         const std::vector<float>& y) {
  ASSERT_EQ(y.size(), static_cast<size_t>(product.tokens() * product.rows()));
  const Outputs reference = product.reference();
  std::optional<Judged> judged;
  if (!is_exact(kernel)) judged = judge_kernel(scalar_gemm(kernel.staged), planes, product.formed());
  int wrong = 0;
  for (int64_t m = 0; m < product.tokens() && wrong < 3; ++m) {
    for (int64_t n = 0; n < product.rows() && wrong < 3; ++n) {
      const auto at = static_cast<size_t>(m * product.rows() + n);
      if (is_exact(kernel)) {
        const bool same = same_bits(y[at], reference.at(m, n));
        EXPECT_TRUE(same) << "token " << m << ", row " << n << ": wanted " << reference.at(m, n) << ", got " << y[at];
        wrong += !same;
        continue;
      }
      double bound = judged->tolerance[at];
      if (kernel.staged == StagedType::f8_row) bound += lost_by_e4m3(planes, product.formed(), m, n, 128);
      if (kernel.staged == StagedType::f8_group) bound += lost_by_e4m3_groups(planes, product.formed(), m, n);
      const bool near = std::fabs(double{y[at]} - judged->y[at]) <= bound;
      EXPECT_TRUE(near) << "token " << m << ", row " << n << ": wanted " << judged->y[at] << " +- " << bound << ", got "
                        << y[at];
      wrong += !near;
    }
  }
}

/// Random weights, but all codes of a row are the highest level or, in every other row, the lowest: with activations of
/// one size the largest sums that there are.
inline Planes extreme_planes(const cuda::GemmKernel& kernel, const WeightSpec& spec, int64_t rows, int64_t cols) {
  Planes planes = planes_for(kernel, spec, rows, cols, 15);
  const bool table = spec.code.map == CodeMap::table;
  uint8_t lowest = 0, highest = static_cast<uint8_t>((1 << spec.code.bits) - 1);
  for (uint8_t c = 0; table && c < 16; ++c) {
    if (spec.code.table[c] < spec.code.table[lowest]) lowest = c;
    if (spec.code.table[c] > spec.code.table[highest]) highest = c;
  }
  if (spec.code.map == CodeMap::e4m3) lowest = 0xFE, highest = 0x7E;  // -448 and 448; 0xFF and 0x7F are NaN
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) planes.row(n).codes[k] = n % 2 == 0 ? highest : lowest;
  }
  return planes;
}
/// Weights that a bias moves to one side are not re-encoded.
inline bool has_extremes(const cuda::GemmKernel& kernel, const WeightSpec& spec) {
  return !restaged(kernel.staged) || !spec.scale.has_bias;
}
/// Rows of 1 and of -1 in turns.
inline Activations extreme_activations(int64_t tokens, int64_t cols) {
  Activations x = Activations::random(tokens, cols, 16);
  for (int64_t m = 0; m < tokens; ++m) {
    for (int64_t k = 0; k < cols; ++k) x.at(m, k) = m % 2 == 0 ? 1.0f : -1.0f;
  }
  return x;
}

template <class Visit>
void for_each_served(const cuda::GemmKernel& kernel, Visit visit) {
  int served = 0;
  for (const NamedSpec& spec : device_specs()) {
    if (!why_not(kernel, spec.spec).empty()) continue;
    SCOPED_TRACE(spec.name);
    visit(spec.spec);
    ++served;
  }
  EXPECT_GT(served, 0) << "no weights for " << name(kernel);
}

struct Shape {
  int64_t tokens, rows, cols;
};

/// The product of random operands of a shape, by fp32 outputs.
inline void expect_right(const ProductDevice& on, const cuda::GemmKernel& kernel, const WeightSpec& spec,
                         const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.rows << " x " << shape.cols);
  const Planes planes = planes_for(kernel, spec, shape.rows, shape.cols, 5);
  const Activations x = Activations::random(shape.tokens, shape.cols, 6);
  DeviceProduct product(on, kernel, planes, x.view());
  expect_right(kernel, planes, product, product.run(true));
}

/// Likewise of the largest operands, where the weights have some.
inline void expect_right_at_extremes(const ProductDevice& on, const cuda::GemmKernel& kernel, const WeightSpec& spec,
                                     const Shape& shape) {
  if (!has_extremes(kernel, spec)) return;
  const Planes planes = extreme_planes(kernel, spec, shape.rows, shape.cols);
  const Activations x = extreme_activations(shape.tokens, shape.cols);
  DeviceProduct product(on, kernel, planes, x.view());
  expect_right(kernel, planes, product, product.run(true));
}

}  // namespace octalane::test
