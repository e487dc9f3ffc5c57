// What the kernels of a CUDA device were measured to cost, as a file.
#pragma once

#include <string>

#include "core/status.h"
#include "cuda/plan.h"

namespace octalane {

/// What rates belong to.
struct CudaDeviceKey {
  std::string name;
  int capability = 0;  ///< as DeviceInfo's
  int multiprocessors = 0;

  friend bool operator==(const CudaDeviceKey&, const CudaDeviceKey&) = default;
};
CudaDeviceKey cuda_device_key(const cuda::DeviceInfo& device);

struct SavedCudaRates {
  CudaDeviceKey device;
  cuda::Rates rates;
};

/// Reads what write_cuda_rates wrote:
///   {"octalane_cuda_rates": 1,
///    "device": {"name": "NVIDIA H200", "capability": 90, "multiprocessors": 132},
///    "memory_bytes_per_second": 4.1e12,
///    "kernels": [{"kernel": "...", "panel_seconds": 4.2e-7, "power_seconds": 4.9e-7, "fixed_seconds": 3e-6},
///                {"kernel": "...", "bytes_per_second": 3.9e12, "fixed_seconds": 2e-6}]}
/// (the numbers are no measurements). A gemm has seconds of a tile and 128 columns, and may have power_seconds; a gemv
/// has bytes per second. Whatever else the file holds is an error that names it and what was wanted; so is a kernel
/// that this build does not have.
Expected<SavedCudaRates> read_cuda_rates(const std::string& path);

/// Writes under a temporary name and renames; makes the folder when it is missing.
Status write_cuda_rates(const std::string& path, const CudaDeviceKey& device, const cuda::Rates& rates);

}  // namespace octalane
