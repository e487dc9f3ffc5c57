#include "cuda/devices.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace octalane::cuda {
namespace {

Expected<int> attribute(const DriverApi& api, Ordinal device, Attribute which) {
  int value = 0;
  const Result result = api.device_get_attribute(&value, which, device);
  const std::string call = fmt::format("cuDeviceGetAttribute of attribute {}", static_cast<int>(which));
  if (const Status got = check(api, result, call); !got) return fail_with(got);
  return value;
}

Status read_attributes(const DriverApi& api, Ordinal device, DeviceInfo& info) {
  int major = 0, minor = 0, clock_khz = 0, memory_khz = 0, l2 = 0, shared = 0;
  const std::pair<Attribute, int*> wanted[] = {{Attribute::capability_major, &major},
                                               {Attribute::capability_minor, &minor},
                                               {Attribute::clock_khz, &clock_khz},
                                               {Attribute::memory_clock_khz, &memory_khz},
                                               {Attribute::l2_bytes, &l2},
                                               {Attribute::shared_bytes_per_block, &shared},
                                               {Attribute::multiprocessors, &info.multiprocessors},
                                               {Attribute::memory_bus_bits, &info.memory_bus_bits}};
  for (const auto& [which, to] : wanted) {
    const Expected<int> value = attribute(api, device, which);
    if (!value) return fail_with(value);
    *to = *value;
  }
  info.capability = 10 * major + minor;
  info.clock_mhz = clock_khz / 1000;
  info.memory_clock_mhz = memory_khz / 1000;
  info.l2_bytes = l2;
  info.shared_bytes_per_block = shared;
  return {};
}

Expected<DeviceInfo> read_device(const DriverApi& api, int index) {
  DeviceInfo info{.index = index};
  Ordinal device = 0;
  if (const Status got = check(api, api.device_get(&device, index), "cuDeviceGet"); !got) return fail_with(got);
  std::array<char, 256> text{};
  const auto bytes = static_cast<int>(text.size());
  if (const Status got = check(api, api.device_get_name(text.data(), bytes, device), "cuDeviceGetName"); !got)
    return fail_with(got);
  info.name.assign(text.data(), ::strnlen(text.data(), text.size()));
  text.fill(0);
  if (const Status got = check(api, api.device_get_pci_bus_id(text.data(), bytes, device), "cuDeviceGetPCIBusId"); !got)
    return fail_with(got);
  info.pci_bus_id.assign(text.data(), ::strnlen(text.data(), text.size()));
  size_t memory = 0;
  if (const Status got = check(api, api.device_total_mem(&memory, device), "cuDeviceTotalMem"); !got)
    return fail_with(got);
  info.memory_bytes = static_cast<int64_t>(memory);
  if (const Status got = read_attributes(api, device, info); !got) return fail_with(got);
  return info;
}

}  // namespace

Expected<std::vector<DeviceInfo>> list_devices(const DriverApi& api) {
  if (const Status got = check(api, api.init(0), "cuInit"); !got) return fail_with(got);
  int version = 0, count = 0;
  if (const Status got = check(api, api.driver_get_version(&version), "cuDriverGetVersion"); !got)
    return fail_with(got);
  if (const Status got = check(api, api.device_get_count(&count), "cuDeviceGetCount"); !got) return fail_with(got);
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    Expected<DeviceInfo> info = read_device(api, index);
    if (!info) return fail_with(info);
    info->driver_version = version;
    devices.push_back(std::move(*info));
  }
  return devices;
}

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string describe(const DeviceInfo& device) {
  return fmt::format(
      "{}: compute capability {}, {} SMs up to {} MHz, {:.1f} GiB at up to {} MHz x {} bits, {:.1f} MiB of L2, "
      "driver for CUDA {}",
      device.name, capability_text(device.capability), device.multiprocessors, device.clock_mhz,
      static_cast<double>(device.memory_bytes) / (1 << 30), device.memory_clock_mhz, device.memory_bus_bits,
      static_cast<double>(device.l2_bytes) / (1 << 20), cuda_version_text(device.driver_version));
}

}  // namespace octalane::cuda
