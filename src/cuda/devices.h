// What the CUDA devices of this machine are.
#pragma once

#include <string>
#include <vector>

#include "cuda/driver.h"

namespace octalane::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int capability = 0;  ///< compute capability as 10 * major + minor: 90 is Hopper
  int multiprocessors = 0;
  int clock_mhz = 0, memory_clock_mhz = 0, memory_bus_bits = 0;  ///< the most, not the present
  int64_t memory_bytes = 0, l2_bytes = 0, shared_bytes_per_block = 0;
  int driver_version = 0;  ///< the CUDA version it serves as 1000 * major + 10 * minor
  std::string pci_bus_id;
};

/// Initialises the driver and asks it. Not an error when the list is empty.
Expected<std::vector<DeviceInfo>> list_devices(const DriverApi& api);

/// "NVIDIA H200: compute capability 9.0, 132 SMs up to 1980 MHz, 139.8 GiB at up to 3201 MHz x 6144 bits, 60.0 MiB of
/// L2, driver for CUDA 13.0".
std::string describe(const DeviceInfo& device);

/// "9.0" of 90.
std::string capability_text(int capability);

/// "13.0" of 13000.
std::string cuda_version_text(int version);

}  // namespace octalane::cuda
