// Weights bound to a device, end to end: fp32 activations of the host to fp32 outputs give the bits of the same kernel
// on operands that were staged on the host, and those are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/restage.h"
#include "cuda/host_tokens.h"
#include "cuda/linear.h"
#include "cuda/on_device.h"
#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

using cuda::DeviceLinear;
using testing::HasSubstr;

struct Lane {
  const char* spec;
  StagedType staged;
};
constexpr Lane kLanes[] = {
    {"u4_zero8_g32_f16", StagedType::bf16},        {"u4_g32_nested_bias", StagedType::bf16},
    {"u4_zero8_g32_f16", StagedType::s8_row},      {"u4_zero8_g32_f16", StagedType::s8_xblock},
    {"u4_zero8_g32_f16", StagedType::s8_block},    {"u4_zero8_g32_f16", StagedType::s8_group},
    {"u4_g32_nested_bias", StagedType::s8_nested}, {"u4_g32_nested_bias", StagedType::s8_group},
    {"u4_g64_bf16_bias", StagedType::s8_group},    {"table_g32_e8m0", StagedType::f8_row},
    {"table_g32_e8m0", StagedType::f8_group},      {"e4m3_g32_e8m0", StagedType::f8_group},
    {"e4m3_g32_e8m0", StagedType::bf16},
};

struct Shape {
  int64_t tokens, rows, cols;
};

Expected<DeviceLinear> bind(const Planes& planes, StagedType staged) {
  const Packed packed(planes, scalar_gemm(StagedType::bf16).order);
  return DeviceLinear::bind(*OnDevice::get().kernels, "layer", packed.view(), {.forced = staged}, 2);
}

/// Activations in a kernel's form: by the scalar quantizers on the host, but for f16, which has none there.
struct StagedBefore {
  HostTokens host;
  cuda::Buffer x, scales, sums, minima, workspace;
  cuda::StagedTokens tokens;

  StagedBefore(const DeviceLinear& linear, const cuda::StagingForm& form, const Formed& formed)
      : host(host_tokens(formed.view(), cuda::staged_columns({}, linear.cols()))),
        x(upload(host.x)),
        scales(upload(host.scales)),
        sums(upload(host.sums)),
        minima(upload(host.minima)),
        workspace(upload(
            std::vector<std::byte>(static_cast<size_t>(cuda::staging_bytes(form, formed.view().rows, linear.cols()))))),
        tokens{formed.view().rows, x.address(), scales.address(), sums.address(), minima.address()} {
    if (form.element != cuda::StagedElement::f16) return;
    OnDevice& on = OnDevice::get();
    std::vector<float> dense;
    for (int64_t m = 0; m < tokens.tokens; ++m) {
      const float* const row = formed.view().f32 + m * formed.view().stride;
      dense.insert(dense.end(), row, row + linear.cols());
    }
    const cuda::Buffer from = on.upload(dense);
    const auto staged =
        on.kernels->staging.stage(form, {from.address(), true, tokens.tokens, linear.cols(), linear.cols()},
                                  {workspace.address(), workspace.bytes()}, *on.stream);
    EXPECT_TRUE(staged) << staged.error().message;
    EXPECT_TRUE(on.stream->synchronize());
    if (staged) tokens = *staged;
  }

 private:
  template <class T>
  static cuda::Buffer upload(const std::vector<T>& values) {
    return OnDevice::get().upload(values);
  }
};

/// The product of operands that were staged beforehand, by the kernel that the plan takes.
std::vector<float> staged_before(const DeviceLinear& linear, const Formed& formed) {
  OnDevice& on = OnDevice::get();
  const int64_t tokens = formed.view().rows;
  const auto kernel = linear.choose(tokens);
  EXPECT_TRUE(kernel) << kernel.error().message;
  if (!kernel) return {};
  const StagedBefore staged(linear, linear.staging_form_of(**kernel), formed);
  std::vector<float> y(static_cast<size_t>(tokens * linear.rows()));
  const cuda::Buffer device_y = on.upload(y);
  const Status done =
      linear.multiply_staged(**kernel, staged.tokens, {device_y.address(), true, linear.rows()}, {}, *on.stream);
  EXPECT_TRUE(done) << done.error().message;
  const Status ended = on.stream->synchronize();
  EXPECT_TRUE(ended) << ended.error().message;
  on.download(y, device_y);
  return y;
}

/// Whatever the lane promises: bits, or a distance from fp64. The f8 lanes' sums have tests of their own.
void expect_right(const DeviceLinear& linear, const Planes& planes, StagedType staged, const Formed& formed,
                  Outputs& y) {
  const Kernel& scalar = scalar_gemm(staged);
  if (info(staged).lane == octalane::Lane::f8) return;
  if (staged == StagedType::bf16) {
    const bool few = (*linear.choose(formed.view().rows))->gemv != nullptr;
    const Judged judged = judge_kernel(staged, few ? Exactness::unrounded : Exactness::order, planes, formed);
    const MatrixView<float> v = y.view();
    EXPECT_EQ(mismatch(judged, {v.data, v.rows, v.cols, v.row_stride, 1}), "");
    return;
  }
  const Packed packed(planes, scalar.order);
  Outputs wanted(formed.view().rows, planes.rows(), 1);
  run_in_parts(scalar, packed.view(), formed.view(), wanted.view(), restage_for(scalar, packed.view()));
  for (int64_t m = 0; m < formed.view().rows; ++m) {
    for (int64_t n = 0; n < planes.rows(); ++n) {
      ASSERT_TRUE(same_bits(wanted.at(m, n), y.at(m, n)))
          << m << ", " << n << ": wanted " << wanted.at(m, n) << ", got " << y.at(m, n);
    }
  }
}

class CudaLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(CudaLinear, multiplies_activations_of_the_host_as_it_does_staged_ones) {
  for (const Lane& lane : kLanes) {
    for (const Shape shape : {Shape{1, 200, 512}, {9, 131, 1024}, {70, 200, 1280}, {300, 333, 768}}) {
      SCOPED_TRACE(testing::Message() << lane.spec << " in " << name(lane.staged) << ", " << shape.tokens << " x "
                                      << shape.rows << " x " << shape.cols);
      const Planes planes = random_planes(spec_named(lane.spec).spec, shape.rows, shape.cols, 51);
      const auto linear = bind(planes, lane.staged);
      ASSERT_TRUE(linear) << linear.error().message;
      ASSERT_EQ(linear->fallback(), "");
      const Activations x = Activations::random(shape.tokens, shape.cols, 52);
      Outputs y(shape.tokens, shape.rows, 3);
      const Status done = linear->multiply_host(x.view(), y.view());
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_TRUE(y.canaries_intact());
      const Kernel& scalar = scalar_gemm(lane.staged);
      const Formed formed(quantizer(*find_isa("scalar"), scalar.form), scalar.groups(planes.spec()), x.view(),
                          cuda::staged_columns({}, shape.cols));
      const std::vector<float> wanted = staged_before(*linear, formed);
      ASSERT_EQ(wanted.size(), static_cast<size_t>(shape.tokens * shape.rows));
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        ASSERT_TRUE(same_bits(wanted[i], y.at(at / shape.rows, at % shape.rows))) << "output " << i;
      }
      expect_right(*linear, planes, lane.staged, formed, y);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(CudaLinear, reads_and_writes_bfloat16_of_the_device) {
  OnDevice& on = OnDevice::get();
  const Planes planes = random_planes(spec_named("u4_zero8_g32_f16").spec, 200, 1024, 53);
  const int64_t tokens = 100, stride = 208;  // too many for the kernels that write fp32 only
  const Activations x = Activations::random(tokens, 1024, 54);
  std::vector<uint16_t> half;
  Activations rounded(tokens, 1024, 0);
  for (int64_t m = 0; m < tokens; ++m) {
    for (int64_t k = 0; k < 1024; ++k) {
      half.push_back(f32_to_bf16(x.at(m, k)));
      rounded.at(m, k) = bf16_to_f32(half.back());
    }
  }
  for (const StagedType staged : {StagedType::bf16, StagedType::s8_row}) {
    SCOPED_TRACE(name(staged));
    const auto linear = bind(planes, staged);
    ASSERT_TRUE(linear) << linear.error().message;
    ASSERT_EQ(*linear->choose(tokens, true), *linear->choose(tokens, false)) << "else there is nothing to compare";
    Outputs whole(tokens, 200, 0);
    ASSERT_TRUE(linear->multiply_host(rounded.view(), whole.view()));
    const cuda::Buffer from = on.upload(half);
    std::vector<uint16_t> y(static_cast<size_t>(tokens * stride), 0x7FFF);
    const cuda::Buffer to = on.upload(y);
    const auto workspace = on.session->allocate(linear->workspace_bytes(tokens));
    const Status done = linear->multiply({from.address(), false, tokens, 1024, 1024}, {to.address(), false, stride},
                                         {workspace->address(), workspace->bytes()}, *on.stream);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_TRUE(on.stream->synchronize());
    on.download(y, to);
    for (int64_t m = 0; m < tokens; ++m) {
      for (int64_t n = 0; n < stride; ++n) {
        const uint16_t wanted = n < 200 ? f32_to_bf16(whole.at(m, n)) : uint16_t{0x7FFF};
        ASSERT_EQ(y[static_cast<size_t>(m * stride + n)], wanted) << m << ", " << n;
      }
    }
  }
}

TEST_F(CudaLinear, runs_in_a_graph_as_often_as_it_is_launched) {
  OnDevice& on = OnDevice::get();
  for (const Lane& lane : kLanes) {
    for (const int64_t tokens : {2, 80}) {
      SCOPED_TRACE(testing::Message() << lane.spec << " in " << name(lane.staged) << ", " << tokens);
      const Planes planes = random_planes(spec_named(lane.spec).spec, 200, 1024, 55);
      const auto linear = bind(planes, lane.staged);
      ASSERT_TRUE(linear) << linear.error().message;
      const auto from = on.session->allocate(tokens * 1024 * 4), to = on.session->allocate(tokens * 200 * 4);
      const auto workspace = on.session->allocate(linear->workspace_bytes(tokens));
      ASSERT_TRUE(from && to && workspace);
      const auto graph = cuda::Graph::capture(*on.stream, [&] {
        return linear->multiply({from->address(), true, tokens, 1024, 1024}, {to->address(), true, 200},
                                {workspace->address(), workspace->bytes()}, *on.stream);
      });
      ASSERT_TRUE(graph) << graph.error().message;
      for (const uint32_t seed : {56u, 57u}) {
        Activations x(tokens, 1024, 0);
        const Activations values = Activations::random(tokens, 1024, seed);
        for (int64_t m = 0; m < tokens; ++m) {
          for (int64_t k = 0; k < 1024; ++k) x.at(m, k) = values.at(m, k);
        }
        Outputs wanted(tokens, 200, 0);
        ASSERT_TRUE(linear->multiply_host(x.view(), wanted.view()));
        const auto count = static_cast<size_t>(tokens * 1024);
        ASSERT_TRUE(on.session->copy_in(*from, std::as_bytes(std::span(x.view().data, count))));
        ASSERT_TRUE(graph->launch(*on.stream));
        ASSERT_TRUE(on.stream->synchronize());
        std::vector<float> y(static_cast<size_t>(tokens * 200));
        on.download(y, *to);
        for (size_t i = 0; i < y.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          ASSERT_TRUE(same_bits(y[i], wanted.at(at / 200, at % 200))) << "seed " << seed << ", output " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octalane::test
