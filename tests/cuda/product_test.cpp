// The contract of the product kernels, on a device: what scalar kernels give, to the bit where the lane promises it,
// else within the bounds that its arithmetic has. Outputs are poisoned before, and what lies around them must stay.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "core/half.h"
#include "cuda/on_device.h"
#include "cuda/product_case.h"

namespace octalane::test {
namespace {

using cuda::GemmKernel;

ProductDevice device() {
  const OnDevice& on = OnDevice::get();
  return {*on.session, *on.products, *on.stream};
}

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
      expect_right(device(), kernel(), spec, shape);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(CudaProduct, writes_bfloat16_of_the_same_sums_and_the_same_every_time) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const Planes planes = planes_for(kernel(), spec, 200, 1024, 7);
    const Activations x = Activations::random(270, 1024, 8);
    DeviceProduct product(device(), kernel(), planes, x.view());
    const std::vector<float> whole = product.run(true), half = product.run(false), again = product.run(true);
    ASSERT_EQ(whole.size(), half.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_TRUE(same_bits(round_to_bf16(whole[i]), half[i])) << i << ": " << whole[i] << ", " << half[i];
      ASSERT_TRUE(same_bits(whole[i], again[i])) << i;
    }
  });
}

TEST_P(CudaProduct, holds_the_largest_sums) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    expect_right_at_extremes(device(), kernel(), spec, {9, 70, 2048});
  });
}

TEST_P(CudaProduct, a_token_does_not_see_how_many_there_are) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const Planes planes = planes_for(kernel(), spec, 140, 768, 9);
    const Activations x = Activations::random(260, 768, 10);
    DeviceProduct all(device(), kernel(), planes, x.view());
    const std::vector<float> many = all.run(true);
    for (const int64_t tokens : {1, 63, 129}) {
      const MatrixView<const float> v = x.view();
      DeviceProduct some(device(), kernel(), planes, {v.data, tokens, v.cols, v.row_stride, 1});
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
    DeviceProduct clean(device(), kernel(), planes, x.view());
    const std::vector<float> before = clean.run(true);
    x.at(4, 100) = std::numeric_limits<float>::quiet_NaN();
    DeviceProduct spoilt(device(), kernel(), planes, x.view());
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
    DeviceProduct product(device(), kernel, planes, x.view());
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

/// E4M3 codes stay the bytes that they are, in the order of records.
TEST(CudaRecords, e4m3_codes_are_bytes_beside_their_scales) {
  const Planes planes = random_planes(spec_named("e4m3_g32_e8m0").spec, 70, 192, 15);
  const Packed packed(planes, scalar_gemm(StagedType::f8_group).order);
  const auto records = cuda::pack_records(packed.view(), StagedType::f8_group, nullptr, 1);
  ASSERT_TRUE(records) << records.error().message;
  EXPECT_EQ(records->code, cuda::Code::e4m3);
  EXPECT_EQ(records->layout.bytes, 4096 + 64 * 2 * 2);
  const auto at = [&](int64_t n, int64_t k) {
    return records->bytes.data() + (n / 64 * (records->padded_cols / 64) + k / 64) * records->layout.bytes;
  };
  for (int64_t n = 0; n < 70; ++n) {
    for (int64_t k = 0; k < 192; ++k) {
      const int64_t thread = n % 64 / 16 * 32 + n % 8 * 4 + k % 16 / 4;
      const int64_t byte = k % 64 / 32 * 2048 + thread * 16 + n % 16 / 8 * 8 + k % 32 / 16 * 4 + k % 4;
      ASSERT_EQ(static_cast<uint8_t>(at(n, k)[byte]), planes.row(n).codes[k]) << n << ", " << k;
      uint16_t scale = 0;
      std::memcpy(&scale, at(n, k) + 4096 + (n % 64 * 2 + k % 64 / 32) * 2, 2);
      ASSERT_EQ(bf16_to_f32(scale), planes.row(n).scale[k / 32]) << n << ", " << k;
    }
  }
}

TEST(CudaRecords, lanes_of_e4m3_take_what_is_e4m3) {
  const auto why = [](const char* spec, StagedType staged) {
    return cuda::why_no_records(spec_named(spec).spec, staged);
  };
  for (const char* spec : {"e4m3_g32_e8m0", "table_g32_e8m0", "table_g32_e8m0half"}) {
    EXPECT_EQ(why(spec, StagedType::f8_group), "") << spec;
    EXPECT_EQ(why(spec, StagedType::bf16), "") << spec;
  }
  EXPECT_EQ(why("u4_zero8_g32_f16", StagedType::f8_group), "levels are integers, not E4M3");
  EXPECT_EQ(why("table_g32_f16", StagedType::f8_group), "levels are not all E4M3");
  EXPECT_EQ(why("e4m3_g16_bf16_bias", StagedType::f8_group), "E4M3 has no bias");
  EXPECT_EQ(why("e4m3_g64_f32", StagedType::f8_group), "scales of 32 bits are not served exactly");
  EXPECT_EQ(why("e4m3_g32_e8m0", StagedType::f8_row), "E4M3 codes are not re-encoded here, use f8.group");
  EXPECT_EQ(why("e4m3_g32_e8m0", StagedType::s8_group), "levels that are no integers are not served");
}

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
