// The device list, read from a made-up driver.
#include "cuda/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cuda/fake_driver.h"

namespace octalane::test {
namespace {

using testing::HasSubstr;

TEST(CudaDevices, are_listed_with_what_the_driver_says_of_each) {
  const cuda::DriverApi api = fake_driver();
  const auto devices = cuda::list_devices(api);
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_EQ(devices->size(), 2u);
  const cuda::DeviceInfo& first = devices->at(0);
  EXPECT_EQ(first.name, "Fake H200");
  EXPECT_EQ(first.capability, 90);
  EXPECT_EQ(first.multiprocessors, 132);
  EXPECT_EQ(first.clock_mhz, 1980);
  EXPECT_EQ(first.memory_clock_mhz, 3201);
  EXPECT_EQ(first.memory_bus_bits, 6144);
  EXPECT_EQ(first.memory_bytes, int64_t{140} << 30);
  EXPECT_EQ(first.l2_bytes, 60 << 20);
  EXPECT_EQ(first.shared_bytes_per_block, 232448);
  EXPECT_EQ(first.driver_version, 13000);
  EXPECT_EQ(first.pci_bus_id, "0000:01:00.0");
  EXPECT_EQ(devices->at(1).index, 1);
  EXPECT_EQ(devices->at(1).capability, 86);
  EXPECT_EQ(devices->at(1).multiprocessors, 84);
}

TEST(CudaDevices, are_described_in_one_line) {
  const cuda::DriverApi api = fake_driver();
  EXPECT_EQ(cuda::describe(cuda::list_devices(api)->at(0)),
            "Fake H200: compute capability 9.0, 132 SMs up to 1980 MHz, 140.0 GiB at up to 3201 MHz x 6144 bits, "
            "60.0 MiB of L2, driver for CUDA 13.0");
}

TEST(CudaDevices, may_be_none_without_an_error) {
  const cuda::DriverApi api = fake_driver("", 0, 0);
  const auto devices = cuda::list_devices(api);
  ASSERT_TRUE(devices);
  EXPECT_TRUE(devices->empty());
}

TEST(CudaDevices, every_call_that_fails_is_named) {
  for (const char* call : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                           "cuDeviceGetPCIBusId", "cuDeviceTotalMem", "cuDeviceGetAttribute"}) {
    const cuda::DriverApi api = fake_driver(call);
    const auto devices = cuda::list_devices(api);
    ASSERT_FALSE(devices) << call;
    EXPECT_THAT(
        devices.error().message,
        HasSubstr(std::string(call) + (call == std::string("cuDeviceGetAttribute") ? " of attribute 75: " : ": ")));
    EXPECT_THAT(devices.error().message, HasSubstr("CUDA_ERROR_UNKNOWN"));
    EXPECT_EQ(std::ranges::count(devices.error().message, '\n'), 0);
  }
}

}  // namespace
}  // namespace octalane::test
