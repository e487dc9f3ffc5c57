// The contract of the kernels for codebooks, on a device: fp64 within the bounds of the bf16 lane, the same bits for
// any number of tokens and from every kernel, the baseline that decodes for every 16 tokens included.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/half.h"
#include "cuda/additive_frozen.h"
#include "cuda/additive_product.h"
#include "cuda/codebook_operands.h"
#include "cuda/on_device.h"
#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

using cuda::AdditiveKernel;
using cuda::AdditiveProducts;
using cuda::CodebookRecords;

const Kernel& scalar_bf16() {
  for (const Kernel& kernel : find_isa("scalar")->kernels) {
    if (kernel.staged == StagedType::bf16 && kernel.op == Op::gemm) return kernel;
  }
  ADD_FAILURE() << "no scalar kernel";
  return find_isa("scalar")->kernels[0];
}

/// A kernel and the products that it is one of.
struct Candidate {
  const AdditiveProducts* products;
  const AdditiveKernel* kernel;
};

class CudaAdditive : public testing::Test {
 protected:
  void SetUp() override {
    OnDevice& on = OnDevice::get();
    if (!on.missing.empty()) GTEST_SKIP() << on.missing;
    auto own = AdditiveProducts::load(*on.session);
    ASSERT_TRUE(own) << own.error().message;
    own_.emplace(std::move(*own));
    auto frozen = AdditiveProducts::load(*on.session, bench::frozen_code(), bench::frozen_kernels());
    ASSERT_TRUE(frozen) << frozen.error().message;
    frozen_.emplace(std::move(*frozen));
  }

  std::vector<Candidate> candidates(const WeightSpec& spec) const {
    CodebookRecords weights;
    weights.spec = spec;
    std::vector<Candidate> found;
    for (const AdditiveKernel& kernel : cuda::additive_kernels()) {
      if (cuda::why_not(kernel, weights).empty()) found.push_back({&*own_, &kernel});
    }
    for (const AdditiveKernel& kernel : bench::frozen_kernels()) {
      if (cuda::why_not(kernel, weights).empty()) found.push_back({&*frozen_, &kernel});
    }
    return found;
  }

  const AdditiveProducts& own() const { return *own_; }

 private:
  std::optional<AdditiveProducts> own_, frozen_;
};

/// Weights and activations on the device.
class Operands {
 public:
  Operands(const Planes& planes, MatrixView<const float> x, int split)
      : planes_(planes), formed_(quantizer(*find_isa("scalar"), scalar_bf16().form), {}, x, x.cols), tokens_(x.rows) {
    OnDevice& on = OnDevice::get();
    auto records = pack(planes);
    EXPECT_TRUE(records) << records.error().message;
    records->split = split;
    const int64_t padded_cols = records->padded_cols;
    auto weights = cuda::CodebookWeights::upload(*on.session, std::move(*records));
    EXPECT_TRUE(weights) << weights.error().message;
    weights_.emplace(std::move(*weights));
    staged.resize(static_cast<size_t>(x.rows * padded_cols));
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t k = 0; k < x.cols; ++k) {
        const int64_t at = k / 32 * 32 + cuda::codeword_position(static_cast<int>(k % 32));
        staged[static_cast<size_t>(m * padded_cols + at)] = f32_to_bf16(x(m, k));
      }
    }
    x_.emplace(on.upload(staged));
  }

  /// Outputs [tokens][rows]; what lies around them must stay.
  std::vector<float> run(const Candidate& by, bool f32) const {
    OnDevice& on = OnDevice::get();
    const int64_t n = planes_.rows(), stride = f32 ? n + 3 : (n + 15) / 8 * 8, width = f32 ? 4 : 2;
    std::vector<std::byte> y(static_cast<size_t>((tokens_ + 2) * stride * width), std::byte{0xFF});
    const cuda::Buffer device_y = on.upload(y);
    const Status launched = by.products->multiply(
        *by.kernel, *weights_, {tokens_, x_->address()},
        {device_y.address() + static_cast<cuda::Address>(stride * width), f32, stride}, *on.stream);
    EXPECT_TRUE(launched) << launched.error().message;
    const Status done = on.stream->synchronize();
    EXPECT_TRUE(done) << done.error().message;
    if (!launched || !done) return {};
    on.download(y, device_y);
    std::vector<float> out;
    for (int64_t r = 0; r < tokens_ + 2; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        uint32_t bits = 0;
        std::memcpy(&bits, &y[static_cast<size_t>((r * stride + c) * width)], static_cast<size_t>(width));
        const uint32_t canary = f32 ? 0xFFFFFFFFu : 0xFFFFu;
        if (r == 0 || r == tokens_ + 1 || c >= n) {
          EXPECT_EQ(bits, canary) << "written outside: " << r << ", " << c;
          continue;
        }
        EXPECT_NE(bits, canary) << "not written: " << r - 1 << ", " << c;
        out.push_back(f32 ? std::bit_cast<float>(bits) : bf16_to_f32(static_cast<uint16_t>(bits)));
      }
    }
    return out;
  }

  void expect_right(const std::vector<float>& y) const {
    const Judged judged = judge_kernel(scalar_bf16(), planes_, formed_);
    EXPECT_EQ(mismatch(judged, {y.data(), tokens_, planes_.rows(), planes_.rows(), 1}), "");
  }

  std::vector<uint16_t> staged;

 private:
  const Planes& planes_;
  Formed formed_;
  int64_t tokens_;
  std::optional<cuda::CodebookWeights> weights_;
  std::optional<cuda::Buffer> x_;
};

void expect_same(const std::vector<float>& wanted, const std::vector<float>& got) {
  ASSERT_EQ(wanted.size(), got.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_TRUE(same_bits(wanted[i], got[i])) << i << ": " << wanted[i] << ", " << got[i];
}

struct Shape {
  int64_t tokens, rows, cols;
};

TEST_F(CudaAdditive, every_kernel_is_near_fp64_and_gives_the_bits_of_all_others) {
  for (const NamedSpec& spec : codebook_specs()) {
    for (const Shape shape : {Shape{1, 1, 32},
                              {3, 70, 96},
                              {32, 128, 128},
                              {33, 131, 160},
                              {64, 64, 512},
                              {65, 200, 1024},
                              {128, 333, 640},
                              {300, 257, 1312}}) {
      const Planes planes = random_planes(spec.spec, shape.rows, shape.cols, 5);
      const Activations x = Activations::random(shape.tokens, shape.cols, 6);
      for (const int split : {1, 2}) {
        const Operands operands(planes, x.view(), split);
        std::vector<float> first;
        for (const Candidate& by : candidates(spec.spec)) {
          SCOPED_TRACE(testing::Message() << spec.name << ", " << by.kernel->function << ", split " << split << ": "
                                          << shape.tokens << " x " << shape.rows << " x " << shape.cols);
          const std::vector<float> y = operands.run(by, true);
          if (first.empty()) {
            first = y;
            operands.expect_right(y);
          }
          expect_same(first, y);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaAdditive, writes_bfloat16_of_the_same_sums_and_the_same_every_time) {
  for (const NamedSpec& spec : codebook_specs()) {
    const Planes planes = random_planes(spec.spec, 200, 1024, 7);
    const Activations x = Activations::random(270, 1024, 8);
    for (const int split : {1, 2}) {
      const Operands operands(planes, x.view(), split);
      for (const Candidate& by : candidates(spec.spec)) {
        SCOPED_TRACE(testing::Message() << spec.name << ", " << by.kernel->function << ", split " << split);
        std::vector<float> whole = operands.run(by, true);
        expect_same(whole, operands.run(by, true));
        const std::vector<float> half = operands.run(by, false);
        for (float& value : whole) value = round_to_bf16(value);
        expect_same(whole, half);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CudaAdditive, a_token_does_not_see_how_many_there_are) {
  for (const NamedSpec& spec : codebook_specs()) {
    const Planes planes = random_planes(spec.spec, 140, 768, 9);
    const Activations x = Activations::random(300, 768, 10);
    for (const int split : {1, 2}) {
      const Operands all(planes, x.view(), split);
      std::vector<float> many = all.run(candidates(spec.spec).front(), true);
      for (int64_t tokens = 300; tokens >= 1; tokens -= tokens > 70 ? 23 : 7) {
        const MatrixView<const float> v = x.view();
        const Operands some(planes, {v.data, tokens, v.cols, v.row_stride, 1}, split);
        many.resize(static_cast<size_t>(tokens * planes.rows()));
        for (const Candidate& by : candidates(spec.spec)) {
          SCOPED_TRACE(testing::Message() << spec.name << ", " << by.kernel->function << ": " << tokens);
          expect_same(many, some.run(by, true));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaAdditive, a_token_that_is_not_finite_spoils_itself_alone) {
  const int64_t rows = 70;
  for (const NamedSpec& spec : codebook_specs()) {
    const Planes planes = random_planes(spec.spec, rows, 512, 11);
    Activations x = Activations::random(9, 512, 12);
    const Operands clean(planes, x.view(), 1);
    x.at(4, 100) = std::numeric_limits<float>::quiet_NaN();
    const Operands spoilt(planes, x.view(), 1);
    for (const Candidate& by : candidates(spec.spec)) {
      SCOPED_TRACE(testing::Message() << spec.name << ", " << by.kernel->function);
      const std::vector<float> before = clean.run(by, true), after = spoilt.run(by, true);
      ASSERT_EQ(before.size(), after.size());
      for (int64_t i = 0; i < static_cast<int64_t>(after.size()); ++i) {
        const auto at = static_cast<size_t>(i);
        if (i / rows == 4)
          ASSERT_TRUE(std::isnan(after[at])) << i;
        else
          ASSERT_TRUE(same_bits(before[at], after[at])) << i;
      }
    }
  }
}

TEST_F(CudaAdditive, stages_activations_in_the_order_that_kernels_read) {
  OnDevice& on = OnDevice::get();
  const WeightSpec spec = codebook_specs().front().spec;
  for (const int64_t cols : {32, 160, 1024}) {
    const Planes planes = random_planes(spec, 1, cols, 13);
    const Activations x = Activations::random(5, cols, 14);
    const Operands wanted(planes, x.view(), 1);
    const MatrixView<const float> v = x.view();
    std::vector<float> whole(v.data, v.data + 4 * v.row_stride + cols);
    std::vector<uint16_t> half;
    for (float& value : whole) half.push_back(f32_to_bf16(std::isnan(value) ? 0.0f : value));
    for (const bool f32 : {true, false}) {
      std::vector<uint16_t> staged(wanted.staged.size(), 0xFFFF);
      const cuda::Buffer from = f32 ? on.upload(whole) : on.upload(half), to = on.upload(staged);
      const Status launched = own().stage({from.address(), f32, 5, cols, v.row_stride}, to.address(), *on.stream);
      ASSERT_TRUE(launched) << launched.error().message;
      const Status done = on.stream->synchronize();
      ASSERT_TRUE(done) << done.error().message;
      on.download(staged, to);
      ASSERT_EQ(staged, wanted.staged) << cols << ", fp32: " << f32;
    }
  }
}

}  // namespace
}  // namespace octalane::test
