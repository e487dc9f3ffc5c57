// The product kernels of mma.sync without a device: the host carries their source out, thread by thread, and the same
// results are asked for as on a device.
#include <gtest/gtest.h>

#include "cuda/code.h"
#include "cuda/fake_driver.h"
#include "cuda/gemm_mma_args.h"
#include "cuda/product_case.h"
#include "cuda/software/mma_kernels.h"

namespace octalane::test {
namespace {

using cuda::GemmKernel;

const cuda::DeviceInfo kSoftware{.name = "Software", .capability = 80, .multiprocessors = 1, .clock_mhz = 1};

const std::vector<const GemmKernel*>& kernels_of_mma() {
  static const std::vector<const GemmKernel*> kernels = [] {
    std::vector<const GemmKernel*> found;
    for (const GemmKernel& kernel : cuda::gemm_kernels()) {
      if (kernel.by_mma()) found.push_back(&kernel);
    }
    return found;
  }();
  return kernels;
}

class CudaSoftwareProduct : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (cuda::gemm_code().empty()) GTEST_SKIP() << "built without nvcc";
    session_.emplace(std::move(*cuda::Session::open(api_, kSoftware)));
    products_.emplace(std::move(*cuda::Products::load(*session_)));
    stream_.emplace(std::move(*session_->stream()));
    fake_work().kernel = [this](const std::string& function, void** arguments) {
      const auto& args = *static_cast<const cuda::GemmMmaArgs*>(arguments[0]);
      const int64_t tiles = (args.tokens + kernel().tokens - 1) / kernel().tokens *
                            int64_t{(args.rows + kernel().rows - 1) / kernel().rows};
      EXPECT_EQ(run_mma_kernel(function, args, static_cast<int>(tiles)), "");
      return 1e-6;
    };
  }
  const GemmKernel& kernel() const { return *kernels_of_mma()[GetParam()]; }
  ProductDevice device() const { return {*session_, *products_, *stream_}; }

 private:
  cuda::DriverApi api_ = fake_driver();
  std::optional<cuda::Session> session_;
  std::optional<cuda::Products> products_;
  std::optional<cuda::Stream> stream_;
};

TEST_P(CudaSoftwareProduct, matches_scalar_for_ragged_shapes) {
  int specs = 0;
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    const int64_t unit = std::max<int64_t>(32, column_unit(spec));
    // Of one kind of weights more tokens than a tile has, and more stages than wait at a time.
    std::vector<Shape> shapes{{5, 131, unit}};
    if (specs++ == 0) shapes.push_back({kernel().tokens + 9, 37, (640 + unit - 1) / unit * unit});
    for (const Shape& shape : shapes) {
      expect_right(device(), kernel(), spec, shape);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST_P(CudaSoftwareProduct, holds_the_largest_sums) {
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    expect_right_at_extremes(device(), kernel(), spec, {3, 4, 256});
  });
}

TEST_P(CudaSoftwareProduct, writes_bfloat16_of_the_same_sums) {
  bool done = false;
  for_each_served(kernel(), [&](const WeightSpec& spec) {
    if (std::exchange(done, true)) return;
    const Planes planes = planes_for(kernel(), spec, 70, 256, 7);
    const Activations x = Activations::random(11, 256, 8);
    DeviceProduct product(device(), kernel(), planes, x.view());
    const std::vector<float> whole = product.run(true), half = product.run(false);
    ASSERT_EQ(whole.size(), half.size());
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_TRUE(same_bits(round_to_bf16(whole[i]), half[i])) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaSoftwareProduct, testing::Range(size_t{0}, kernels_of_mma().size()),
                         [](const auto& test) { return std::string(kernels_of_mma()[test.param]->function); });

}  // namespace
}  // namespace octalane::test
