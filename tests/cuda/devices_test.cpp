// The device list, read from a made-up driver.
#include "cuda/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/fake_driver.h"

namespace octalane::test {
namespace {

using cuda::Attribute;
using testing::HasSubstr;

std::string failing_call;
int failing_result = 0, device_count = 0;

int result_of(const char* call) { return failing_call == call ? failing_result : 0; }

int copy_text(const char* text, char* to, int bytes) {
  std::strncpy(to, text, static_cast<size_t>(bytes));
  return 0;
}

int attribute_of(Attribute which, int device) {
  switch (which) {
    case Attribute::capability_major: return device == 0 ? 9 : 8;
    case Attribute::capability_minor: return device == 0 ? 0 : 6;
    case Attribute::clock_khz: return 1980000;
    case Attribute::memory_clock_khz: return 3201000;
    case Attribute::memory_bus_bits: return 6144;
    case Attribute::l2_bytes: return 60 << 20;
    case Attribute::shared_bytes_per_block: return 232448;
    case Attribute::multiprocessors: return device == 0 ? 132 : 84;
  }
  return -1;
}

}  // namespace

cuda::DriverApi fake_driver(const char* failing, int with, int devices) {
  failing_call = failing;
  failing_result = with;
  device_count = devices;
  cuda::DriverApi api;
  api.init = [](unsigned) { return result_of("cuInit"); };
  api.driver_get_version = [](int* version) { return *version = 13000, result_of("cuDriverGetVersion"); };
  api.get_error_name = [](int result, const char** name) {
    if (result == kNamelessError) return 1;
    *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
  };
  api.get_error_string = [](int result, const char** text) {
    *text = result == kOutOfMemory ? "out of memory" : nullptr;
    return 0;
  };
  api.device_get_count = [](int* count) { return *count = device_count, result_of("cuDeviceGetCount"); };
  api.device_get = [](cuda::Ordinal* device, int index) { return *device = index, result_of("cuDeviceGet"); };
  api.device_get_name = [](char* name, int bytes, cuda::Ordinal device) {
    copy_text(device == 0 ? "Fake H200" : "Fake A40", name, bytes);
    return result_of("cuDeviceGetName");
  };
  api.device_get_pci_bus_id = [](char* id, int bytes, cuda::Ordinal device) {
    copy_text(device == 0 ? "0000:01:00.0" : "0000:02:00.0", id, bytes);
    return result_of("cuDeviceGetPCIBusId");
  };
  api.device_total_mem = [](size_t* bytes, cuda::Ordinal) {
    *bytes = size_t{140} << 30;
    return result_of("cuDeviceTotalMem");
  };
  api.device_get_attribute = [](int* value, Attribute which, cuda::Ordinal device) {
    *value = attribute_of(which, device);
    return result_of("cuDeviceGetAttribute");
  };
  return api;
}

namespace {

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
