// Clock, power and temperature of a device at a moment, from NVML where it is installed.
#pragma once

#include <optional>
#include <string>

namespace octalane::cuda {

/// What NVML says now; empty where it is absent or does not tell.
struct DeviceState {
  std::optional<double> sm_clock_mhz, memory_clock_mhz, power_watts, power_limit_watts, temperature_celsius;
};

/// Never an error: without NVML everything is empty.
DeviceState read_state(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");

}  // namespace octalane::cuda
