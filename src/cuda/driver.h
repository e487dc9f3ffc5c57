// The CUDA driver, opened at run time: octalane is built without CUDA's headers and runs where there is no driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/status.h"

namespace octalane::cuda {

// The driver's ABI, as far as octalane uses it. Handles are opaque, addresses lie in device memory.
using Result = int;
using Ordinal = int;
using Address = unsigned long long;
using ContextHandle = struct ContextState*;
using ModuleHandle = struct ModuleState*;
using FunctionHandle = struct FunctionState*;
using EventHandle = struct EventState*;
using StreamHandle = struct StreamState*;
using GraphHandle = struct GraphState*;
using GraphExecHandle = struct GraphExecState*;

struct TensorMap;  // cuda/gemm_args.h: the driver's CUtensorMap

enum class Attribute : int {
  clock_khz = 13,
  multiprocessors = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  capability_major = 75,
  capability_minor = 76,
  shared_bytes_per_block = 97,  ///< that a kernel may opt in to
};
enum class FunctionAttribute : int { local_bytes = 3, registers = 4, dynamic_shared_bytes = 8 };
enum class CaptureMode : int { global = 0, this_thread = 1, relaxed = 2 };
enum class TensorElement : int { u8 = 0, bf16 = 9 };  ///< CUtensorMapDataType

/// CUlaunchAttribute: a number that says which, and 64 bytes of value.
struct LaunchAttribute {
  static constexpr int kClusterDimension = 4;                 ///< its value: x, y, z
  static constexpr int kProgrammaticStreamSerialization = 6;  ///< its value: 1
  int id = 0;
  int padding = 0;
  alignas(8) unsigned value[16] = {};
};
static_assert(sizeof(LaunchAttribute) == 72 && alignof(LaunchAttribute) == 8);

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

/// The driver's functions, under its own names without "cu". Tests fill the table with functions of their own.
struct DriverApi {
  Result (*init)(unsigned flags) = nullptr;
  Result (*driver_get_version)(int* version) = nullptr;
  Result (*get_error_name)(Result, const char** name) = nullptr;
  Result (*get_error_string)(Result, const char** text) = nullptr;
  Result (*device_get_count)(int* count) = nullptr;
  Result (*device_get)(Ordinal*, int index) = nullptr;
  Result (*device_get_name)(char* name, int bytes, Ordinal) = nullptr;
  Result (*device_get_attribute)(int* value, Attribute, Ordinal) = nullptr;
  Result (*device_total_mem)(size_t* bytes, Ordinal) = nullptr;
  Result (*device_get_pci_bus_id)(char* id, int bytes, Ordinal) = nullptr;
  Result (*primary_ctx_retain)(ContextHandle*, Ordinal) = nullptr;
  Result (*primary_ctx_release)(Ordinal) = nullptr;
  Result (*ctx_set_current)(ContextHandle) = nullptr;
  Result (*ctx_synchronize)() = nullptr;
  Result (*module_load_data)(ModuleHandle*, const void* image) = nullptr;
  Result (*module_unload)(ModuleHandle) = nullptr;
  Result (*module_get_function)(FunctionHandle*, ModuleHandle, const char* name) = nullptr;
  Result (*func_set_attribute)(FunctionHandle, FunctionAttribute, int value) = nullptr;
  Result (*func_get_attribute)(int* value, FunctionAttribute, FunctionHandle) = nullptr;
  Result (*launch_kernel)(FunctionHandle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle, void** arguments,
                          void** extra) = nullptr;
  Result (*launch_kernel_ex)(const LaunchConfig*, FunctionHandle, void** arguments, void** extra) = nullptr;
  Result (*mem_alloc)(Address*, size_t bytes) = nullptr;
  Result (*mem_free)(Address) = nullptr;
  Result (*memcpy_htod)(Address to, const void* from, size_t bytes) = nullptr;
  Result (*memcpy_dtoh)(void* to, Address from, size_t bytes) = nullptr;
  Result (*memcpy_htod_async)(Address to, const void* from, size_t bytes, StreamHandle) = nullptr;
  Result (*memcpy_dtoh_async)(void* to, Address from, size_t bytes, StreamHandle) = nullptr;
  Result (*memcpy_dtod_async)(Address to, Address from, size_t bytes, StreamHandle) = nullptr;
  Result (*memset_d8_async)(Address to, unsigned char value, size_t bytes, StreamHandle) = nullptr;
  Result (*event_create)(EventHandle*, unsigned flags) = nullptr;
  Result (*event_destroy)(EventHandle) = nullptr;
  Result (*event_record)(EventHandle, StreamHandle) = nullptr;
  Result (*event_synchronize)(EventHandle) = nullptr;
  Result (*event_elapsed_time)(float* milliseconds, EventHandle begin, EventHandle end) = nullptr;
  Result (*stream_create)(StreamHandle*, unsigned flags) = nullptr;
  Result (*stream_destroy)(StreamHandle) = nullptr;
  Result (*stream_synchronize)(StreamHandle) = nullptr;
  Result (*stream_begin_capture)(StreamHandle, CaptureMode) = nullptr;
  Result (*stream_end_capture)(StreamHandle, GraphHandle*) = nullptr;
  Result (*graph_instantiate)(GraphExecHandle*, GraphHandle, unsigned long long flags) = nullptr;
  Result (*graph_launch)(GraphExecHandle, StreamHandle) = nullptr;
  Result (*graph_exec_destroy)(GraphExecHandle) = nullptr;
  Result (*graph_destroy)(GraphHandle) = nullptr;
  Result (*tensor_map_encode_tiled)(TensorMap*, TensorElement, uint32_t rank, void* address, const uint64_t* dimensions,
                                    const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                                    int interleave, int swizzle, int l2_promotion, int out_of_bounds) = nullptr;
};

/// The functions of a driver library, which stays open. An error says that there is none, or what it lacks.
Expected<DriverApi> load_driver(const char* library = "libcuda.so.1");

/// An error when the driver's answer is one: "cuda: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
Status check(const DriverApi& api, Result result, std::string_view call);

}  // namespace octalane::cuda
