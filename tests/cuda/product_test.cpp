// The contract of the product kernels, on a device: what scalar kernels give, to the bit where the lane promises it,
// else within the bounds that its arithmetic has. Outputs are poisoned before, and what lies around them must stay.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/half.h"
#include "core/restage.h"
#include "cuda/host_tokens.h"
#include "cuda/kernel_weights.h"
#include "cuda/on_device.h"
#include "kernels/all_kernels.h"
#include "kernels/operands.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

using cuda::GemmKernel;

/// One product of a kernel on the device beside the scalar one.
class DeviceProduct {
 public:
  DeviceProduct(const GemmKernel& kernel, const Planes& planes, MatrixView<const float> x)
      : kernel_(kernel),
        reference_(scalar_gemm(kernel.staged)),
        packed_(planes, reference_.order),
        formed_(quantizer(*find_isa("scalar"), reference_.form), reference_.groups(planes.spec()), x,
                packed_.view().padded_cols()) {}

  /// fp32 outputs [tokens][rows]; empty when something failed.
  std::vector<float> run(bool f32, cuda::ProductOptions options = {128, 0}) {
    OnDevice& on = OnDevice::get();
    std::optional<Restaged> made;
    if (restaged(kernel_.staged)) made = restage(packed_.view(), kernel_.staged, 1);
    auto records = cuda::pack_records(packed_.view(), kernel_.staged, made ? &*made : nullptr, 2);
    EXPECT_TRUE(records) << records.error().message;
    if (!records) return {};
    auto weights = cuda::DeviceWeights::upload(*on.session, std::move(*records));
    EXPECT_TRUE(weights) << weights.error().message;
    const HostTokens tokens = host_tokens(formed_.view(), weights->about().padded_cols);
    const cuda::Buffer x = on.upload(tokens.x), scales = on.upload(tokens.scales), sums = on.upload(tokens.sums);
    const cuda::Buffer minima = on.upload(tokens.minima);
    const int64_t m = formed_.view().rows, n = packed_.view().rows;
    // A stride with a gap, of multiples of 16 bytes; a row before and after.
    const int64_t stride = f32 ? n + 3 : (n + 15) / 8 * 8, width = f32 ? 4 : 2;
    std::vector<std::byte> y(static_cast<size_t>((m + 2) * stride * width), std::byte{0xFF});
    const cuda::Buffer device_y = on.upload(y);
    const Status launched = on.products->multiply(
        kernel_, *weights, {m, x.address(), scales.address(), sums.address(), minima.address()},
        {device_y.address() + static_cast<cuda::Address>(stride * width), f32, stride}, *on.stream, options);
    EXPECT_TRUE(launched) << launched.error().message;
    const Status done = on.stream->synchronize();
    EXPECT_TRUE(done) << done.error().message;
    if (!done) return {};
    on.download(y, device_y);
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
  const GemmKernel& kernel_;
  const Kernel& reference_;
  Packed packed_;
  Formed formed_;
};

bool is_exact(const GemmKernel& kernel) {
  return kernel.staged != StagedType::bf16 && kernel.staged != StagedType::f8_row;
}

/// The tensor cores' sums of E4M3 products keep about 14 bits: every addition of 128 columns may lose 2^-13 of the
/// largest magnitude among its addends, on top of what fp32 loses.
double lost_by_e4m3(const Planes& planes, const Formed& x, int64_t m, int64_t n, int64_t promote) {
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

void expect_right(const GemmKernel& kernel, const Planes& planes, DeviceProduct& product, const std::vector<float>& y) {
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
      const bool near = std::fabs(double{y[at]} - judged->y[at]) <= bound;
      EXPECT_TRUE(near) << "token " << m << ", row " << n << ": wanted " << judged->y[at] << " +- " << bound << ", got "
                        << y[at];
      wrong += !near;
    }
  }
}

template <class Visit>
void for_each_served(const GemmKernel& kernel, Visit visit) {
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

class CudaProduct : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  }
  const GemmKernel& kernel() const { return cuda::gemm_kernels()[static_cast<size_t>(GetParam())]; }
};

TEST_P(CudaProduct, matches_scalar_for_ragged_shapes) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const int64_t unit = std::max<int64_t>(kernel().form == cuda::Form::shift ? 64 : 32, column_unit(spec));
    for (const Shape shape : {Shape{1, 1, unit},
                              {3, 70, unit * 2},
                              {64, 128, unit * 3},
                              {65, 131, unit * 5},
                              {300, 200, 512},
                              {130, 333, 1024 + 256}}) {
      SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.rows << " x " << shape.cols);
      const Planes planes = planes_for(kernel(), spec, shape.rows, shape.cols, 5);
      const Activations x = Activations::random(shape.tokens, shape.cols, 6);
      DeviceProduct product(kernel(), planes, x.view());
      expect_right(kernel(), planes, product, product.run(true));
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(CudaProduct, writes_bfloat16_of_the_same_sums_and_the_same_every_time) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const Planes planes = planes_for(kernel(), spec, 200, 1024, 7);
    const Activations x = Activations::random(270, 1024, 8);
    DeviceProduct product(kernel(), planes, x.view());
    const std::vector<float> whole = product.run(true), half = product.run(false), again = product.run(true);
    ASSERT_EQ(whole.size(), half.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_TRUE(same_bits(round_to_bf16(whole[i]), half[i])) << i << ": " << whole[i] << ", " << half[i];
      ASSERT_TRUE(same_bits(whole[i], again[i])) << i;
    }
  });
}

TEST_P(CudaProduct, a_token_does_not_see_how_many_there_are) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const Planes planes = planes_for(kernel(), spec, 140, 768, 9);
    const Activations x = Activations::random(260, 768, 10);
    DeviceProduct all(kernel(), planes, x.view());
    const std::vector<float> many = all.run(true);
    for (const int64_t tokens : {1, 63, 129}) {
      const MatrixView<const float> v = x.view();
      DeviceProduct some(kernel(), planes, {v.data, tokens, v.cols, v.row_stride, 1});
      const std::vector<float> few = some.run(true);
      ASSERT_FALSE(few.empty());
      for (size_t i = 0; i < few.size(); ++i) ASSERT_TRUE(same_bits(few[i], many[i])) << tokens << ": " << i;
    }
  });
}

TEST_P(CudaProduct, a_token_that_is_not_finite_spoils_itself_alone) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const Planes planes = planes_for(kernel(), spec, 70, 512, 11);
    Activations x = Activations::random(9, 512, 12);
    DeviceProduct clean(kernel(), planes, x.view());
    const std::vector<float> before = clean.run(true);
    x.at(4, 100) = std::numeric_limits<float>::quiet_NaN();
    DeviceProduct spoilt(kernel(), planes, x.view());
    const std::vector<float> after = spoilt.run(true);
    ASSERT_FALSE(after.empty());
    for (size_t i = 0; i < after.size(); ++i) {
      if (i / 70 == 4)
        ASSERT_TRUE(std::isnan(after[i])) << i;
      else
        ASSERT_TRUE(same_bits(before[i], after[i])) << i;
    }
  });
}

/// All products positive, 16384 columns: what the tensor cores' narrow sums lose, by columns from promotion to
/// promotion.
TEST(CudaPromotion, keeps_what_narrow_sums_lose) {
  if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  constexpr int64_t kCols = 16384, kRows = 16, kTokens = 4;
  const GemmKernel* promoting = nullptr;
  for (const GemmKernel& kernel : cuda::gemm_kernels()) {
    if (kernel.staged != StagedType::f8_row) continue;
    if (kernel.form == cuda::Form::exponent && promoting == nullptr) promoting = &kernel;
  }
  ASSERT_TRUE(promoting != nullptr);
  const NamedSpec& spec = spec_named("table_g32_e8m0");
  Planes planes = random_planes(spec.spec, kRows, kCols, 13);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kCols; ++k) planes.row(n).codes[k] &= 7;
    for (int64_t g = 0; g < kCols / 32; ++g) planes.row(n).scale[g] = 1.0f;
  }
  Activations x = Activations::random(kTokens, kCols, 14);
  for (int64_t m = 0; m < kTokens; ++m) {
    for (int64_t k = 0; k < kCols; ++k) x.at(m, k) = std::fabs(x.at(m, k)) + 0.1f;
  }
  const auto error = [&](int promote) {
    const GemmKernel& kernel = *promoting;
    DeviceProduct product(kernel, planes, x.view());
    const std::vector<float> y = product.run(true, {promote, 0});
    const Judged judged = judge_kernel(scalar_gemm(kernel.staged), planes, product.formed());
    double off = 0, all = 0;
    for (size_t i = 0; i < y.size(); ++i) off += std::pow(y[i] - judged.y[i], 2), all += std::pow(judged.y[i], 2);
    return std::sqrt(off / all);
  };
  std::map<int, double> errors;
  for (const int promote : {128, 256, 512, 1024, 2048, 4096, 16384}) {
    errors[promote] = error(promote);
    RecordProperty(fmt::format("promote_{}", promote), fmt::format("{:.2e}", errors[promote]));
    fmt::print("promotion every {} columns: relative error {:.2e}\n", promote, errors[promote]);
  }
  // Less than rounding to a bfloat16 output may lose; and without promotion the test fails.
  EXPECT_LT(errors[512], 0x1p-9);
  EXPECT_GT(errors[16384], 0x1p-5) << "the sums of this device are wider than thought";
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaProduct, testing::Range(0, static_cast<int>(cuda::gemm_kernels().size())),
                         [](const auto& test) {
                           return std::string(cuda::gemm_kernels()[static_cast<size_t>(test.param)].function);
                         });

TEST(CudaRecords, kernels_have_names_of_their_own) {
  std::set<std::string> names;
  for (const GemmKernel& kernel : cuda::gemm_kernels()) {
    EXPECT_TRUE(names.insert(name(kernel)).second) << name(kernel);
    EXPECT_EQ(std::string(kernel.function).find('-'), std::string::npos);
  }
}

TEST(CudaRecords, every_kernel_serves_some_weights) {
  for (const GemmKernel& kernel : cuda::gemm_kernels()) {
    for_each_served(kernel, [](const WeightSpec&) {});
  }
}

}  // namespace
}  // namespace octalane::test
