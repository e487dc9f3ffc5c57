// Weights bound to a made-up device: what is kept, what is launched, what is refused, and that every call of the driver
// that fails is reported.
#include "cuda/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "cuda/code.h"
#include "cuda/fake_driver.h"
#include "cuda/host_tokens.h"
#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

using cuda::DeviceInfo;
using cuda::DeviceLinear;
using cuda::LaneOptions;
using testing::AllOf;
using testing::HasSubstr;

const DeviceInfo kHopper{.name = "Fake H200",
                         .capability = 90,
                         .multiprocessors = 132,
                         .clock_mhz = 1980,
                         .memory_clock_mhz = 3201,
                         .memory_bus_bits = 6144,
                         .shared_bytes_per_block = 232448};

constexpr const char* kSpec = "u4_zero8_g32_f16";

Planes sound_planes(int64_t rows = 200, int64_t cols = 1024) {
  return random_planes(spec_named(kSpec).spec, rows, cols, 41);
}

/// Every group's weights are 6 or 7 times a scale.
Planes planes_of_one_sign() {
  Planes planes = sound_planes();
  for (int64_t n = 0; n < planes.rows(); ++n) {
    for (int64_t k = 0; k < planes.cols(); ++k) planes.row(n).codes[k] = static_cast<uint8_t>(14 + k % 2);
  }
  return planes;
}

class FakeLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gemm_code().empty()) GTEST_SKIP() << "built without nvcc";
    open(kHopper);
  }
  void open(const DeviceInfo& device) {
    auto session = cuda::Session::open(api_, device);
    ASSERT_TRUE(session) << session.error().message;
    session_.emplace(std::move(*session));
    auto kernels = cuda::LinearKernels::load(*session_);
    ASSERT_TRUE(kernels) << kernels.error().message;
    kernels_.emplace(std::move(*kernels));
    stream_.emplace(std::move(*session_->stream()));
  }
  Expected<DeviceLinear> bind(const Planes& planes, const LaneOptions& lanes = {}) {
    const Packed packed(planes, scalar_gemm(StagedType::bf16).order);
    return DeviceLinear::bind(*kernels_, "layer", packed.view(), lanes, 2);
  }
  std::string kernel_of(const DeviceLinear& linear, int64_t tokens) {
    const auto kernel = linear.choose(tokens);
    return kernel ? (*kernel)->kernel : kernel.error().message;
  }

  cuda::DriverApi api_ = fake_driver();
  std::optional<cuda::Session> session_;
  std::optional<cuda::LinearKernels> kernels_;
  std::optional<cuda::Stream> stream_;
};

TEST_F(FakeLinear, keeps_what_its_lanes_read_and_says_how_much) {
  const auto stock = bind(sound_planes());
  ASSERT_TRUE(stock) << stock.error().message;
  // 4 records of 64 rows by 16 of 64 columns: 2048 bytes of codes, 2 scales of 2 bytes for each of 64 rows.
  EXPECT_GE(stock->exact_bytes(), 4 * 16 * (2048 + 64 * 4));
  EXPECT_LT(stock->exact_bytes(), 4 * 16 * (2048 + 64 * 4) + 1024);
  EXPECT_EQ(stock->encoded_bytes(), 0);
  EXPECT_EQ(stock->encoding(), std::nullopt);
  EXPECT_EQ(stock->encoding_error(), 0);
  const auto both = bind(sound_planes(), {.lossy = {StagedType::s8_row}});
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->exact_bytes(), stock->exact_bytes());
  EXPECT_GE(both->encoded_bytes(), 4 * 16 * (2048 + 64 * 8) + 256 * 4);
  EXPECT_EQ(both->encoding(), StagedType::s8_row);
  EXPECT_GT(both->encoding_error(), 0);
  EXPECT_THAT(kernel_of(*both, 1), HasSubstr("bf16_gemv"));
  EXPECT_THAT(kernel_of(*both, 4096), HasSubstr("s8.row_gemm"));
  const auto forced = bind(sound_planes(), {.forced = StagedType::s8_row});
  ASSERT_TRUE(forced) << forced.error().message;
  EXPECT_EQ(forced->exact_bytes(), 0);
  EXPECT_EQ(forced->encoded_bytes(), both->encoded_bytes());
  EXPECT_THAT(kernel_of(*forced, 1), HasSubstr("s8.row_gemm"));
  EXPECT_EQ(forced->fallback(), "");
}

TEST_F(FakeLinear, that_a_re_encoding_would_spoil_is_bound_without_it_and_says_so) {
  const auto forced = bind(planes_of_one_sign(), {.forced = StagedType::s8_xblock});
  ASSERT_TRUE(forced) << forced.error().message;
  EXPECT_THAT(forced->fallback(),
              AllOf(testing::StartsWith("s8.group instead of s8.xblock: "), HasSubstr("share a sign far from zero")));
  EXPECT_THAT(kernel_of(*forced, 1), HasSubstr("s8.group_gemm"));
  EXPECT_EQ(forced->encoded_bytes(), 0);
  EXPECT_THAT(forced->plan(1)->reason, testing::StartsWith("s8.group instead of s8.xblock: "));

  const auto lossy = bind(planes_of_one_sign(), {.lossy = {StagedType::s8_row, StagedType::s8_block}});
  ASSERT_TRUE(lossy) << lossy.error().message;
  EXPECT_THAT(lossy->fallback(), testing::StartsWith("not s8."));
  EXPECT_THAT(kernel_of(*lossy, 4096), HasSubstr("bf16_gemm"));
  EXPECT_EQ(lossy->encoded_bytes(), 0);
  EXPECT_GT(lossy->exact_bytes(), 0);

  Planes spread = random_planes(spec_named("table_g32_e8m0").spec, 64, 256, 42);
  for (int64_t n = 0; n < 64; ++n) spread.row(n).scale[0] = 0x1p-30f;
  const auto f8 = bind(spread, {.forced = StagedType::f8_row});
  ASSERT_TRUE(f8) << f8.error().message;
  EXPECT_THAT(f8->fallback(),
              AllOf(testing::StartsWith("f8.group instead of f8.row: "), HasSubstr("do not move exactly")));
  EXPECT_THAT(kernel_of(*f8, 1), HasSubstr("f8.group_gemm"));
}

TEST_F(FakeLinear, that_is_e4m3_is_multiplied_as_it_is) {
  const Planes planes = random_planes(spec_named("e4m3_g32_e8m0").spec, 64, 256, 46);
  const auto group = bind(planes, {.forced = StagedType::f8_group});
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_THAT(kernel_of(*group, 1), AllOf(HasSubstr("f8.group_gemm"), HasSubstr("cuda-e4m3-single-g32")));
  EXPECT_EQ(group->encoded_bytes(), 0);
  const auto stock = bind(planes);
  ASSERT_TRUE(stock) << stock.error().message;
  EXPECT_THAT(kernel_of(*stock, 1), AllOf(HasSubstr("bf16_gemm"), HasSubstr("cuda-e4m3-single-g32")));
  const auto row = bind(planes, {.forced = StagedType::f8_row});
  ASSERT_FALSE(row);
  EXPECT_THAT(row.error().message, HasSubstr("E4M3 codes are not re-encoded here"));
}

TEST_F(FakeLinear, takes_the_kernel_that_its_records_turned_out_to_need) {
  Planes planes = random_planes(spec_named("table_g32_e8m0").spec, 64, 256, 45);
  const auto close = bind(planes, {.forced = StagedType::f8_row});
  ASSERT_TRUE(close) << close.error().message;
  EXPECT_THAT(kernel_of(*close, 512), HasSubstr("-exponent-"));
  EXPECT_THAT(kernel_of(*close, 512), testing::Not(HasSubstr("whole")));
  for (int64_t n = 0; n < 64; ++n) {
    for (int g = 0; g < 8; ++g) planes.row(n).scale[g] = g == 0 ? 0x1p-13f : 1.0f;
  }
  const auto apart = bind(planes, {.forced = StagedType::f8_row});
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_EQ(apart->fallback(), "");
  EXPECT_THAT(kernel_of(*apart, 512), HasSubstr("-shift-"));
}

TEST_F(FakeLinear, that_no_kernel_serves_is_an_error_with_its_name) {
  const auto books = bind(random_planes(spec_named("m2v8_g128").spec, 64, 256, 43));
  ASSERT_FALSE(books);
  EXPECT_THAT(books.error().message, AllOf(testing::StartsWith("layer: no kernel serves 64 rows x 256 columns: "),
                                           HasSubstr("levels that are no integers are not served")));
  const auto forced =
      bind(random_planes(spec_named("u8_g64_bf16_bias").spec, 64, 256, 44), {.forced = StagedType::s8_row});
  ASSERT_FALSE(forced);
  EXPECT_THAT(forced.error().message, HasSubstr("codes of 8 bits are not re-encoded"));
}

TEST_F(FakeLinear, stages_and_multiplies_in_a_graph) {
  const auto linear = bind(sound_planes());
  ASSERT_TRUE(linear) << linear.error().message;
  const int64_t bytes = linear->workspace_bytes(300);
  const auto memory = session_->allocate(bytes);
  const cuda::Workspace workspace{memory->address(), bytes};
  const int live = fake_work().live;
  const auto graph = cuda::Graph::capture(*stream_, [&]() -> Status {
    if (const Status s = linear->multiply({4096, true, 2, 1024, 1024}, {8192, true, 200}, workspace, *stream_); !s)
      return s;
    return linear->multiply({4096, false, 300, 1024, 1024}, {8192, false, 208}, workspace, *stream_);
  });
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(fake_work().live, live + 1) << "nothing but the graph";
  ASSERT_TRUE(graph->launch(*stream_) && graph->launch(*stream_));
  std::vector<std::string> names;
  for (const FakeLaunch& launch : fake_work().launches) names.push_back(launch.function);
  using testing::StartsWith;
  EXPECT_THAT(names, testing::ElementsAre("stage_f16_f32", "gemv_nibble_32_4", "stage_bf16_bf16",
                                          StartsWith("bf16_nibble_single2"), "stage_f16_f32", "gemv_nibble_32_4",
                                          "stage_bf16_bf16", StartsWith("bf16_nibble_single2")));
}

TEST_F(FakeLinear, shares_what_was_staged_where_forms_are_equal) {
  const auto q = bind(sound_planes()), k = bind(sound_planes(64)),
             lossy = bind(sound_planes(), {.forced = StagedType::s8_row});
  const auto a = q->choose(2), b = k->choose(2), c = lossy->choose(2);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(q->staging_form_of(**a), k->staging_form_of(**b));
  EXPECT_FALSE(q->staging_form_of(**a) == lossy->staging_form_of(**c));
  const auto memory = session_->allocate(q->workspace_bytes(2));
  const cuda::Workspace workspace{memory->address(), q->workspace_bytes(2)};
  const auto x = kernels_->staging.stage(q->staging_form_of(**a), {4096, true, 2, 1024, 1024}, workspace, *stream_);
  ASSERT_TRUE(x) << x.error().message;
  EXPECT_TRUE(q->multiply_staged(**a, *x, {8192, true, 200}, {}, *stream_));
  EXPECT_TRUE(k->multiply_staged(**b, *x, {8192, true, 64}, {}, *stream_));
  EXPECT_EQ(fake_work().launches.size(), 3u);
  EXPECT_THAT(q->multiply_staged(**c, *x, {8192, true, 200}, {}, *stream_).error().message,
              HasSubstr("weights were bound without what it reads"));
}

TEST_F(FakeLinear, says_what_does_not_fit) {
  const auto linear = bind(sound_planes());
  ASSERT_TRUE(linear) << linear.error().message;
  const cuda::Workspace room{1 << 20, 1 << 20};
  const auto error = [&](cuda::Tokens x, cuda::Output y, cuda::Workspace workspace) {
    const Status done = linear->multiply(x, y, workspace, *stream_);
    return done ? std::string("none") : done.error().message;
  };
  const cuda::Tokens x{4096, true, 2, 1024, 1024};
  const cuda::Output y{8192, true, 200};
  EXPECT_EQ(error(x, y, room), "none");
  EXPECT_EQ(error({4096, true, 2, 1000, 1024}, y, room), "layer: wanted 1024 input columns, got 1000");
  EXPECT_EQ(error(x, {8192, true, 199}, room), "layer: wanted an output stride of at least 200, got 199");
  EXPECT_EQ(error(x, {8194, true, 200}, room), "layer: wanted an output at a multiple of 4 bytes, got 0x2002");
  EXPECT_EQ(error(x, {8200, false, 200}, room), "layer: wanted an output at a multiple of 16 bytes, got 0x2008");
  EXPECT_EQ(error(x, y, {1 << 20, 4607}),
            "layer: cuda: staging: wanted a workspace of 4608 bytes for 2 x 1024, got 4607");
  EXPECT_EQ(error({4096, true, 0, 1024, 1024}, y, {}), "none");
  std::vector<float> host(2 * 1024), out(2 * 200);
  EXPECT_THAT(linear->multiply_host(dense_view<const float>(host.data(), 2, 1000), dense_view(out.data(), 2, 200))
                  .error()
                  .message,
              HasSubstr("layer: wanted 1024 input columns"));
}

TEST_F(FakeLinear, runs_where_there_are_neither_clusters_nor_wgmma) {
  DeviceInfo ampere = kHopper;
  ampere.capability = 80;
  ampere.shared_bytes_per_block = 166912;
  open(ampere);
  const auto linear = bind(sound_planes());
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(linear->partial_bytes(2), 4 * 2 * 256 * 4);
  EXPECT_EQ(linear->workspace_bytes(2), 2 * 1024 * 2 + 256 + 256 + linear->partial_bytes(2));
  EXPECT_THAT(kernel_of(*linear, 2), HasSubstr("bf16_gemv"));
  const auto memory = session_->allocate(linear->workspace_bytes(2));
  cuda::Workspace workspace{memory->address(), linear->workspace_bytes(2)};
  EXPECT_TRUE(linear->multiply({4096, true, 2, 1024, 1024}, {8192, true, 200}, workspace, *stream_));
  ASSERT_EQ(fake_work().launches.size(), 3u);
  EXPECT_EQ(fake_work().launches[2].function, "gemv_sum");
  --workspace.bytes;
  EXPECT_EQ(linear->multiply({4096, true, 2, 1024, 1024}, {8192, true, 200}, workspace, *stream_).error().message,
            "layer: wanted a workspace of 8192 bytes for partial sums, got 8191");

  EXPECT_EQ(kernel_of(*linear, 512), "bf16_gemm_128x64x64_mma-nibble-single-g32");
  const int64_t bytes = linear->workspace_bytes(512);
  const auto more = session_->allocate(bytes);
  fake_work().launches.clear();
  // Some of its stride is left free: a bfloat16 output needs no more than its alignment.
  EXPECT_TRUE(linear->multiply({4096, true, 512, 1024, 1024}, {8192, false, 201}, {more->address(), bytes}, *stream_));
  ASSERT_EQ(fake_work().launches.size(), 2u);
  EXPECT_EQ(fake_work().launches[1].function, "mma_bf16_nibble_single_128x64");
  EXPECT_EQ(fake_work().launches[1].blocks, 8u * 2u);
  EXPECT_EQ(fake_work().launches[1].threads, 128u);

  const auto row = bind(sound_planes(), {.forced = StagedType::s8_row});
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_THAT(kernel_of(*row, 512), HasSubstr("s8.row_gemm_128x64x128_mma-nibble-g32"));
  EXPECT_THAT(bind(sound_planes(), {.forced = StagedType::f8_row}).error().message,
              HasSubstr("wanted compute capability 9.0, got 8.0"));
}

/// Everything that bound weights can do, once.
Status do_everything(const cuda::DriverApi& api) {
  const auto session = cuda::Session::open(api, kHopper);
  if (!session) return fail_with(session);
  const auto kernels = cuda::LinearKernels::load(*session);
  if (!kernels) return fail_with(kernels);
  const Packed packed(sound_planes(), scalar_gemm(StagedType::bf16).order);
  const auto linear = DeviceLinear::bind(*kernels, "layer", packed.view(), {.lossy = {StagedType::s8_row}}, 2);
  if (!linear) return fail_with(linear);
  for (const int64_t tokens : {2, 600}) {
    std::vector<float> x(static_cast<size_t>(tokens * 1024)), y(static_cast<size_t>(tokens * 200));
    const Status done =
        linear->multiply_host(dense_view<const float>(x.data(), tokens, 1024), dense_view(y.data(), tokens, 200));
    if (!done) return done;
  }
  return {};
}

TEST_F(FakeLinear, every_call_that_fails_is_named_and_what_was_made_before_is_given_back) {
  kernels_.reset(), stream_.reset(), session_.reset();
  api_ = fake_driver();
  const Status done = do_everything(api_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(fake_work().live, 0);
  for (const char* call : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuMemAlloc",
                           "cuMemcpyHtoD", "cuCtxSynchronize", "cuStreamCreate", "cuLaunchKernel", "cuLaunchKernelEx",
                           "cuTensorMapEncodeTiled", "cuStreamSynchronize", "cuMemcpyDtoH"}) {
    api_ = fake_driver(call);
    const Status failed = do_everything(api_);
    ASSERT_FALSE(failed) << call;
    EXPECT_THAT(failed.error().message, testing::ContainsRegex(std::string("cuda: ") + call + "[: ]"));
    EXPECT_EQ(fake_work().live, 0) << call;
  }
}

}  // namespace
}  // namespace octalane::test
