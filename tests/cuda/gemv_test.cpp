// Products of few tokens on a device, judged in fp64 on the decoded weights, which they do not round. On a made-up
// driver: what is launched, and what is refused.
#include "cuda/gemv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "cuda/code.h"
#include "cuda/fake_driver.h"
#include "cuda/gemv_args.h"
#include "cuda/host_tokens.h"
#include "cuda/on_device.h"
#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

using cuda::DeviceInfo;
using cuda::GemvKernel;
using testing::HasSubstr;

const DeviceInfo kHopper{
    .name = "Fake H200", .capability = 90, .multiprocessors = 132, .shared_bytes_per_block = 232448};
const DeviceInfo kAmpere{
    .name = "Fake A100", .capability = 80, .multiprocessors = 108, .shared_bytes_per_block = 166912};

cuda::Records records_of(const WeightSpec& spec, int64_t rows, int64_t cols) {
  auto records = cuda::describe_records(spec, rows, cols, StagedType::bf16);
  EXPECT_TRUE(records) << records.error().message;
  return *records;
}

/// The kernel for these weights and this number of tokens; null when there is none.
const GemvKernel* kernel_for(const cuda::Records& records, int tokens, const DeviceInfo& device) {
  for (const GemvKernel& kernel : cuda::gemv_kernels()) {
    if (kernel.tokens == tokens && cuda::why_not(kernel, records, device).empty()) return &kernel;
  }
  return nullptr;
}

/// The smallest kernel that takes them all at once.
int tokens_of_kernel(int64_t tokens) { return tokens <= 1 ? 1 : tokens <= 4 ? 4 : tokens <= 8 ? 8 : 16; }

template <class Visit>
void for_each_served(Visit visit) {
  for (const NamedSpec& spec : all_specs()) {
    if (!cuda::why_no_records(spec.spec, StagedType::bf16).empty()) continue;
    if (spec.spec.code.map == CodeMap::e4m3) continue;  // gemms serve few tokens of these too
    SCOPED_TRACE(spec.name);
    visit(spec.spec);
    if (testing::Test::HasFailure()) return;
  }
}

/// One product on the device. Its outputs lie between poison, which must stay.
class DeviceGemv {
 public:
  DeviceGemv(const Planes& planes, MatrixView<const float> x)
      : packed_(planes, scalar_gemm(StagedType::bf16).order),
        formed_(quantizer(*find_isa("scalar"), ActivationForm::bf16_as_f32), {}, x, packed_.view().padded_cols()) {}

  /// fp32 outputs [tokens][rows] by the kernel of so many tokens; empty when something failed. `partials`: sums go
  /// through memory instead of clusters.
  std::vector<float> run(int kernel_tokens, bool partials = false) {
    OnDevice& on = OnDevice::get();
    auto records = cuda::pack_records(packed_.view(), StagedType::bf16, nullptr, 2);
    EXPECT_TRUE(records) << records.error().message;
    if (!records) return {};
    const GemvKernel* const kernel = kernel_for(*records, kernel_tokens, on.session->device());
    EXPECT_NE(kernel, nullptr);
    auto weights = cuda::DeviceWeights::upload(*on.session, std::move(*records));
    EXPECT_TRUE(weights) << weights.error().message;
    if (kernel == nullptr || !weights) return {};
    const int64_t m = formed_.view().rows, n = packed_.view().rows, stride = n + 3;
    // bfloat16, as fp32: what the product is judged on.
    const ActivationsView from = formed_.view();
    std::vector<float> tokens(static_cast<size_t>(m * from.cols));
    for (int64_t i = 0; i < m; ++i) std::copy_n(from.f32 + i * from.stride, from.cols, tokens.data() + i * from.cols);
    const cuda::Buffer x = on.upload(tokens);
    const cuda::StagingForm form = cuda::staging_form(*kernel);
    const std::vector<std::byte> poison(static_cast<size_t>(cuda::staging_bytes(form, m, from.cols)), std::byte{0xFF});
    const cuda::Buffer workspace = on.upload(poison);
    const auto staged = on.kernels->staging.stage(form, {x.address(), true, m, from.cols, from.cols},
                                                  {workspace.address(), workspace.bytes()}, *on.stream);
    EXPECT_TRUE(staged) << staged.error().message;
    if (!staged) return {};
    std::vector<uint32_t> y(static_cast<size_t>((m + 2) * stride), kPoison);
    const cuda::Buffer device_y = on.upload(y);
    const std::vector<float> room(
        partials ? static_cast<size_t>(cuda::partial_bytes(weights->about(), m, kAmpere) / 4) : 4, NAN);
    const cuda::Buffer sums = on.upload(room);
    const Status launched = on.kernels->gemvs.multiply(
        *kernel, *weights, *staged, {device_y.address() + static_cast<cuda::Address>(stride * 4), true, stride},
        *on.stream, partials ? sums.address() : 0);
    EXPECT_TRUE(launched) << launched.error().message;
    const Status done = on.stream->synchronize();
    EXPECT_TRUE(done) << done.error().message;
    if (!launched || !done) return {};
    on.download(y, device_y);
    std::vector<float> out;
    for (int64_t r = 0; r < m + 2; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        const uint32_t bits = y[static_cast<size_t>(r * stride + c)];
        if (r == 0 || r == m + 1 || c >= n) {
          EXPECT_EQ(bits, kPoison) << "written outside: " << r << ", " << c;
        } else {
          EXPECT_NE(bits, kPoison) << "not written: " << r - 1 << ", " << c;
          out.push_back(std::bit_cast<float>(bits));
        }
      }
    }
    return out;
  }

  const Formed& formed() const { return formed_; }

 private:
  static constexpr uint32_t kPoison = 0xFFFFFFFF;
  Packed packed_;
  Formed formed_;
};

void expect_right(const Planes& planes, const DeviceGemv& product, const std::vector<float>& y) {
  const int64_t tokens = product.formed().view().rows;
  ASSERT_EQ(y.size(), static_cast<size_t>(tokens * planes.rows()));
  const Judged judged = judge_kernel(StagedType::bf16, Exactness::unrounded, planes, product.formed());
  EXPECT_EQ(mismatch(judged, dense_view(y.data(), tokens, planes.rows())), "");
}

void expect_same(const std::vector<float>& wanted, const std::vector<float>& got, const char* what) {
  ASSERT_LE(got.size(), wanted.size()) << what;
  ASSERT_FALSE(got.empty()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_bits(wanted[i], got[i])) << what << ": output " << i;
}

class CudaGemv : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(CudaGemv, is_right_for_one_to_sixteen_tokens) {
  for_each_served([](const WeightSpec& spec) {
    const Planes planes = random_planes(spec, 130, 768, 21);
    const Activations x = Activations::random(16, 768, 22);
    for (int64_t tokens = 1; tokens <= 16; ++tokens) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens");
      const MatrixView<const float> v = x.view();
      DeviceGemv product(planes, {v.data, tokens, v.cols, v.row_stride, 1});
      expect_right(planes, product, product.run(tokens_of_kernel(tokens)));
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_F(CudaGemv, is_right_for_ragged_shapes) {
  struct Shape {
    int64_t tokens, rows, cols;
  };
  for_each_served([](const WeightSpec& spec) {
    const int64_t unit = std::max<int64_t>(32, column_unit(spec));
    for (const Shape shape : {Shape{1, 1, unit},
                              {3, 70, unit * 2},
                              {8, 128, unit * 3},
                              {9, 129, unit * 5},
                              {16, 200, 1280},
                              {2, 257, 2304},
                              {11, 20, 4096 + 256}}) {
      SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.rows << " x " << shape.cols);
      const Planes planes = random_planes(spec, shape.rows, shape.cols, 23);
      const Activations x = Activations::random(shape.tokens, shape.cols, 24);
      DeviceGemv product(planes, x.view());
      expect_right(planes, product, product.run(tokens_of_kernel(shape.tokens)));
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_F(CudaGemv, gives_a_token_the_same_bits_every_time_in_any_company_and_without_clusters) {
  for_each_served([](const WeightSpec& spec) {
    const Planes planes = random_planes(spec, 140, 2304, 25);
    const Activations x = Activations::random(37, 2304, 26);
    const MatrixView<const float> v = x.view();
    const auto first = [&](int64_t tokens) {
      return DeviceGemv(planes, MatrixView<const float>{v.data, tokens, v.cols, v.row_stride, 1});
    };
    for (const int kernel : {1, 4, 8, 16}) {
      SCOPED_TRACE(testing::Message() << "kernel of " << kernel);
      const std::vector<float> many = first(37).run(kernel);
      expect_same(many, first(37).run(kernel), "again");
      expect_same(many, first(37).run(kernel, true), "sums through memory");
      for (int64_t tokens = 1; tokens <= kernel; tokens += 3) expect_same(many, first(tokens).run(kernel), "fewer");
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_F(CudaGemv, a_token_that_is_not_finite_spoils_itself_alone) {
  for_each_served([](const WeightSpec& spec) {
    for (const auto& [tokens, kernel] : {std::pair<int64_t, int>{7, 1}, {7, 4}, {5, 8}, {13, 16}}) {
      const Planes planes = random_planes(spec, 70, 512, 27);
      Activations x = Activations::random(tokens, 512, 28);
      const std::vector<float> before = DeviceGemv(planes, x.view()).run(kernel);
      x.at(4, 100) = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> after = DeviceGemv(planes, x.view()).run(kernel);
      ASSERT_EQ(before.size(), after.size());
      ASSERT_FALSE(after.empty());
      for (size_t i = 0; i < after.size(); ++i) {
        if (i / 70 == 4)
          ASSERT_TRUE(std::isnan(after[i])) << i;
        else
          ASSERT_TRUE(same_bits(before[i], after[i])) << i;
      }
    }
  });
}

TEST_F(CudaGemv, is_right_for_tokens_of_any_size_and_one_value_above_the_rest) {
  for_each_served([](const WeightSpec& spec) {
    const Planes planes = random_planes(spec, 40, 640 - 640 % column_unit(spec), 32);
    for (const float size : {1e-30f, 1e-6f, 1e6f, 1e30f}) {
      for (const int kernel : {1, 4, 16}) {
        SCOPED_TRACE(testing::Message() << "times " << size << ", kernel of " << kernel);
        Activations x = Activations::random(kernel, planes.cols(), 33);
        for (int64_t token = 0; token < kernel; ++token) {
          for (int64_t k = 0; k < planes.cols(); ++k) x.at(token, k) *= size;
          x.at(token, 7 * token) *= 100;
        }
        DeviceGemv product(planes, x.view());
        expect_right(planes, product, product.run(kernel));
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST_F(CudaGemv, takes_fewer_tokens_at_once_where_columns_are_many) {
  for (const char* spec_name : {"u4_g32_nested_bias", "table_g32_f16", "u8_g64_bf16_bias"}) {
    for (const int64_t cols : {65536, 131072}) {
      SCOPED_TRACE(testing::Message() << spec_name << ", " << cols);
      const Planes planes = random_planes(spec_named(spec_name).spec, 17, cols, 29);
      const Activations x = Activations::random(10, cols, 30);
      DeviceGemv product(planes, x.view());
      expect_right(planes, product, product.run(8));
    }
  }
}

TEST(CudaGemvKernels, leave_e4m3_codes_to_gemms) {
  const cuda::Records records = records_of(spec_named("e4m3_g32_e8m0").spec, 64, 256);
  for (const GemvKernel& kernel : cuda::gemv_kernels()) {
    EXPECT_THAT(cuda::why_not(kernel, records, kHopper), HasSubstr("codes, got e4m3")) << name(kernel);
  }
}

TEST(CudaGemvKernels, serve_all_weights_that_have_exact_integer_records) {
  for_each_served([](const WeightSpec& spec) {
    for (const DeviceInfo& device : {kHopper, kAmpere}) {
      for (const int tokens : {1, 4, 8, 16}) {
        const GemvKernel* const kernel = kernel_for(records_of(spec, 64, 256), tokens, device);
        ASSERT_NE(kernel, nullptr);
        EXPECT_EQ(kernel->group, std::min<int>(64, spec.scale.group));
      }
    }
  });
}

TEST(CudaGemvKernels, say_what_they_do_not_serve) {
  const GemvKernel& kernel = cuda::gemv_kernels()[6];
  ASSERT_EQ(cuda::name(kernel), "bf16_gemv_16x8x64_cuda-nibble-g32");
  const auto why = [&](const char* spec, StagedType staged, const DeviceInfo& device = kHopper) {
    return cuda::why_not(kernel, *cuda::describe_records(spec_named(spec).spec, 64, 256, staged), device);
  };
  EXPECT_EQ(why("u4_zero8_g32_f16", StagedType::bf16), "");
  EXPECT_EQ(why("u4_zero8_g32_f16", StagedType::s8_group), "") << "the same records";
  EXPECT_EQ(why("u4_zero8_g32_f16", StagedType::s8_row), "weights are packed for s8.row");
  EXPECT_EQ(why("table_g32_e8m0", StagedType::f8_row), "weights are packed for f8.row");
  EXPECT_EQ(why("table_g32_f16", StagedType::bf16), "wanted nibble codes, got table");
  EXPECT_EQ(why("u4_g64_bf16_bias", StagedType::bf16), "wanted groups of 32, got 64");
  EXPECT_EQ(why("u4_zero8_g32_f16", StagedType::bf16, {.capability = 75, .shared_bytes_per_block = 65536}),
            "wanted compute capability 8.0, got 7.5");
  cuda::Records tall = records_of(spec_named("u4_zero8_g32_f16").spec, int64_t{65535} * 128 + 1, 256);
  EXPECT_EQ(cuda::why_not(kernel, tall, kHopper), "wanted at most 8388480 rows, got 8388481");
  cuda::Records nested = records_of(spec_named("u4_g32_nested_bias").spec, 64, 256);
  nested.group = 64;
  nested.layout = cuda::record_layout(4, 64, cuda::ScaleWords::nested);
  EXPECT_EQ(cuda::why_not(cuda::gemv_kernels()[8], nested, kHopper), "nested scales need groups of 16 or 32");
}

TEST(CudaGemvKernels, take_as_many_tokens_at_once_as_shared_memory_holds) {
  const WeightSpec& spec = spec_named("u4_zero8_g32_f16").spec;
  const GemvKernel &eight = cuda::gemv_kernels()[6], &sixteen = cuda::gemv_kernels()[7];
  const auto at_once = [&](const GemvKernel& kernel, int64_t cols) {
    return cuda::tokens_at_once(kernel, records_of(spec, 64, cols), kHopper);
  };
  EXPECT_EQ(at_once(eight, 4096), 8);
  EXPECT_EQ(at_once(sixteen, 4096), 16);
  // A slice of 65536 columns has 128 records: 16448 bytes a token, 16 of them alone are more than there is.
  EXPECT_EQ(at_once(eight, 65536), 8);
  EXPECT_EQ(at_once(sixteen, 65536), 13);
  EXPECT_EQ(at_once(eight, 1 << 22), 0);
  EXPECT_EQ(cuda::why_not(sixteen, records_of(spec, 64, 1 << 22), kHopper),
            "the parts of a token of 4194304 columns do not fit 232448 bytes of shared memory");
  EXPECT_EQ(cuda::partial_bytes(records_of(spec, 200, 4096), 3, kHopper), 0);
  EXPECT_EQ(cuda::partial_bytes(records_of(spec, 200, 4096), 3, kAmpere), 8 * 3 * 256 * 4);
  EXPECT_EQ(cuda::partial_bytes(records_of(spec, 200, 4096), 300, kAmpere), 8 * 16 * 256 * 4);
}

class FakeGemv : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gemv_code().empty()) GTEST_SKIP() << "built without nvcc";
    fake_work().kernel = [this](const std::string&, void** arguments) {
      std::memcpy(&args_.emplace_back(), arguments[0], sizeof(cuda::GemvArgs));
      return 0.0;
    };
  }
  /// y = x W^T for 200 x 4096 weights on a device; x lies at 4096, y at 8192 with a stride of 300, partials at 512.
  Status multiply(const DeviceInfo& device, int64_t tokens, int kernel_tokens, bool f32 = true, bool partials = false) {
    const auto session = cuda::Session::open(api_, device);
    const auto gemvs = cuda::Gemvs::load(*session);
    if (!gemvs) return fail_with(gemvs);
    const Planes planes = random_planes(spec_named("u4_zero8_g32_f16").spec, 200, 4096, 31);
    const Packed packed(planes, scalar_gemm(StagedType::bf16).order);
    auto weights =
        cuda::DeviceWeights::upload(*session, *cuda::pack_records(packed.view(), StagedType::bf16, nullptr, 2));
    const auto stream = session->stream();
    const GemvKernel* const kernel = kernel_for(weights->about(), kernel_tokens, device);
    return gemvs->multiply(*kernel, *weights, {.tokens = tokens, .x = 4096, .scales = 1024, .sums = 2048},
                           {8192, f32, 300}, *stream, partials ? 512 : 0);
  }

  cuda::DriverApi api_ = fake_driver();
  std::vector<cuda::GemvArgs> args_;
};

TEST_F(FakeGemv, is_clusters_of_slices_where_there_are_clusters) {
  const Status done = multiply(kHopper, 20, 16);
  ASSERT_TRUE(done) << done.error().message;
  const auto& launches = fake_work().launches;
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].function, "gemv_nibble_32_16");
  EXPECT_EQ(launches[1].function, "gemv_nibble_32_16") << "the last four, with the same bits";
  for (const FakeLaunch& launch : launches) {
    EXPECT_EQ(launch.blocks, 8u);
    EXPECT_EQ(launch.cluster, 8u);
    EXPECT_EQ(launch.blocks_y, 13u) << "groups of 16 rows, for up to 16 clusters";
    EXPECT_EQ(launch.threads, 512u);
  }
  EXPECT_GT(launches[0].shared_bytes, launches[1].shared_bytes) << "tokens that there are not take no place";
  EXPECT_EQ(args_[0].tokens, 16);
  EXPECT_EQ(args_[0].partials, nullptr);
  EXPECT_EQ(args_[1].tokens, 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args_[1].x), 4096u + 16 * 4096 * 2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args_[1].x_scales), 1024u + 16 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args_[1].x_sums), 2048u + 16 * 128 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args_[1].y), 8192u + 16 * 300 * 4);
}

TEST_F(FakeGemv, sums_slices_through_memory_where_there_are_none) {
  const Status done = multiply(kAmpere, 3, 8, true, true);
  ASSERT_TRUE(done) << done.error().message;
  const auto& launches = fake_work().launches;
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].cluster, 1u);
  EXPECT_EQ(launches[0].blocks, 8u);
  EXPECT_EQ(launches[1].function, "gemv_sum");
  EXPECT_EQ(launches[1].blocks, 1u);
  EXPECT_EQ(launches[1].blocks_y, 3u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args_[1].partials), 512u);
}

TEST_F(FakeGemv, says_what_it_cannot_do) {
  EXPECT_THAT(multiply(kHopper, 3, 8, false).error().message,
              HasSubstr("bf16_gemv_16x8x64_cuda-nibble-g32: wanted an output of fp32, got bfloat16"));
  EXPECT_THAT(multiply(kAmpere, 3, 8).error().message, HasSubstr("wanted memory for partial sums"));
  EXPECT_TRUE(fake_work().launches.empty());
}

}  // namespace
}  // namespace octalane::test
