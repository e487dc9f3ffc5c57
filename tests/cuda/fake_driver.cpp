#include "cuda/fake_driver.h"

#include <cstring>
#include <string>

namespace octalane::test {
namespace {

using cuda::Attribute;

std::string failing_call;
int failing_result = 0, device_count = 0;

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

int fake_result(const char* call) { return failing_call == call ? failing_result : 0; }

cuda::DriverApi fake_driver(const char* failing, int with, int devices) {
  fake_work() = {};
  failing_call = failing;
  failing_result = with;
  device_count = devices;
  cuda::DriverApi api;
  api.init = [](unsigned) { return fake_result("cuInit"); };
  api.driver_get_version = [](int* version) { return *version = 13000, fake_result("cuDriverGetVersion"); };
  api.get_error_name = [](int result, const char** name) {
    if (result == kNamelessError) return 1;
    *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
  };
  api.get_error_string = [](int result, const char** text) {
    *text = result == kOutOfMemory ? "out of memory" : nullptr;
    return 0;
  };
  api.device_get_count = [](int* count) { return *count = device_count, fake_result("cuDeviceGetCount"); };
  api.device_get = [](cuda::Ordinal* device, int index) { return *device = index, fake_result("cuDeviceGet"); };
  api.device_get_name = [](char* name, int bytes, cuda::Ordinal device) {
    copy_text(device == 0 ? "Fake H200" : "Fake A40", name, bytes);
    return fake_result("cuDeviceGetName");
  };
  api.device_get_pci_bus_id = [](char* id, int bytes, cuda::Ordinal device) {
    copy_text(device == 0 ? "0000:01:00.0" : "0000:02:00.0", id, bytes);
    return fake_result("cuDeviceGetPCIBusId");
  };
  api.device_total_mem = [](size_t* bytes, cuda::Ordinal) {
    *bytes = size_t{140} << 30;
    return fake_result("cuDeviceTotalMem");
  };
  api.device_get_attribute = [](int* value, Attribute which, cuda::Ordinal device) {
    *value = attribute_of(which, device);
    return fake_result("cuDeviceGetAttribute");
  };
  add_fake_work(api);
  return api;
}

}  // namespace octalane::test
