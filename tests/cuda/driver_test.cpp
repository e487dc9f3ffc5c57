// Opening a driver that is not there, and the driver's answers as errors.
#include "cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/fake_driver.h"
#include "cuda/nvml.h"

namespace octalane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(CudaDriver, that_is_not_there_is_one_line_with_its_name) {
  const auto api = cuda::load_driver("libno_such_driver.so.1");
  ASSERT_FALSE(api);
  EXPECT_THAT(api.error().message, HasSubstr("cuda: wanted the NVIDIA driver's libno_such_driver.so.1, got: "));
  EXPECT_THAT(api.error().message, Not(HasSubstr("\n")));
}

TEST(CudaDriver, a_library_that_is_no_driver_is_told_what_it_lacks) {
  const auto api = cuda::load_driver("libm.so.6");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().message, "cuda: libm.so.6 has no cuInit: wanted the driver of CUDA 12 or newer");
}

TEST(CudaDriver, answers_become_errors_by_name_and_text_as_far_as_it_has_them) {
  const cuda::DriverApi api = fake_driver();
  EXPECT_TRUE(cuda::check(api, 0, "cuInit"));
  EXPECT_EQ(cuda::check(api, kOutOfMemory, "cuMemAlloc of 8 bytes").error().message,
            "cuda: cuMemAlloc of 8 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_EQ(cuda::check(api, kUnknownError, "cuInit").error().message, "cuda: cuInit: CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(cuda::check(api, kNamelessError, "cuInit").error().message, "cuda: cuInit: error 12345");
}

TEST(Nvml, that_is_not_there_leaves_everything_unknown) {
  const cuda::DeviceState state = cuda::read_state("0000:01:00.0", "libno_such_nvml.so.1");
  EXPECT_FALSE(state.sm_clock_mhz || state.memory_clock_mhz || state.power_watts || state.power_limit_watts ||
               state.temperature_celsius);
}

}  // namespace
}  // namespace octalane::test
