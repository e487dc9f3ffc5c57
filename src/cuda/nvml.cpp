#include "cuda/nvml.h"

#include "cuda/shared_library.h"

namespace octalane::cuda {
namespace {

using NvmlDevice = struct NvmlDeviceState*;

/// NVML's functions, under its own names without "nvml".
struct NvmlApi {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_pci_bus_id)(const char* id, NvmlDevice*) = nullptr;
  int (*clock_info)(NvmlDevice, int type, unsigned* mhz) = nullptr;
  int (*power_usage)(NvmlDevice, unsigned* milliwatts) = nullptr;
  int (*power_limit)(NvmlDevice, unsigned* milliwatts) = nullptr;
  int (*temperature)(NvmlDevice, int sensor, unsigned* celsius) = nullptr;
};

Expected<NvmlApi> load(const char* library) {
  Expected<SharedLibrary> from = SharedLibrary::open(library);
  if (!from) return fail_with(from);
  NvmlApi api;
  from->bind(api.init, "nvmlInit_v2");
  from->bind(api.shutdown, "nvmlShutdown");
  from->bind(api.by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  from->bind(api.clock_info, "nvmlDeviceGetClockInfo");
  from->bind(api.power_usage, "nvmlDeviceGetPowerUsage");
  from->bind(api.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  from->bind(api.temperature, "nvmlDeviceGetTemperature");
  if (const Status complete = from->complete(); !complete) return fail_with(complete);
  return api;
}

}  // namespace

DeviceState read_state(const std::string& pci_bus_id, const char* library) {
  constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;
  DeviceState state;
  const Expected<NvmlApi> api = load(library);
  if (!api || api->init() != 0) return state;
  NvmlDevice device = nullptr;
  if (api->by_pci_bus_id(pci_bus_id.c_str(), &device) == 0) {
    unsigned value = 0;
    const auto told = [&](int result, double unit) {
      return result == 0 ? std::optional<double>(value * unit) : std::nullopt;
    };
    state.sm_clock_mhz = told(api->clock_info(device, kSmClock, &value), 1);
    state.memory_clock_mhz = told(api->clock_info(device, kMemoryClock, &value), 1);
    state.power_watts = told(api->power_usage(device, &value), 1e-3);
    state.power_limit_watts = told(api->power_limit(device, &value), 1e-3);
    state.temperature_celsius = told(api->temperature(device, kGpuSensor, &value), 1);
  }
  api->shutdown();
  return state;
}

}  // namespace octalane::cuda
