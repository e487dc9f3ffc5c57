#include "cuda/driver.h"

#include "cuda/shared_library.h"

namespace octalane::cuda {

// Symbols of CUDA 12's cuda.h. Most are older: graphs by capture are of 10.1 and 11.4, cuLaunchKernelEx is of 11.8.
// cuTensorMapEncodeTiled is of 12.0, so a driver that has everything is one of CUDA 12.
Expected<DriverApi> load_driver(const char* library) {
  Expected<SharedLibrary> opened = SharedLibrary::open(library);
  if (!opened) return fail_with(opened);
  SharedLibrary& from = *opened;
  DriverApi api;
  from.bind(api.init, "cuInit");
  from.bind(api.driver_get_version, "cuDriverGetVersion");
  from.bind(api.get_error_name, "cuGetErrorName");
  from.bind(api.get_error_string, "cuGetErrorString");
  from.bind(api.device_get_count, "cuDeviceGetCount");
  from.bind(api.device_get, "cuDeviceGet");
  from.bind(api.device_get_name, "cuDeviceGetName");
  from.bind(api.device_get_attribute, "cuDeviceGetAttribute");
  from.bind(api.device_total_mem, "cuDeviceTotalMem_v2");
  from.bind(api.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  from.bind(api.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  from.bind(api.primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  from.bind(api.ctx_set_current, "cuCtxSetCurrent");
  from.bind(api.ctx_synchronize, "cuCtxSynchronize");
  from.bind(api.module_load_data, "cuModuleLoadData");
  from.bind(api.module_unload, "cuModuleUnload");
  from.bind(api.module_get_function, "cuModuleGetFunction");
  from.bind(api.func_set_attribute, "cuFuncSetAttribute");
  from.bind(api.func_get_attribute, "cuFuncGetAttribute");
  from.bind(api.launch_kernel, "cuLaunchKernel");
  from.bind(api.launch_kernel_ex, "cuLaunchKernelEx");
  from.bind(api.mem_alloc, "cuMemAlloc_v2");
  from.bind(api.mem_free, "cuMemFree_v2");
  from.bind(api.memcpy_htod, "cuMemcpyHtoD_v2");
  from.bind(api.memcpy_dtoh, "cuMemcpyDtoH_v2");
  from.bind(api.memcpy_htod_async, "cuMemcpyHtoDAsync_v2");
  from.bind(api.memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2");
  from.bind(api.memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
  from.bind(api.memset_d8_async, "cuMemsetD8Async");
  from.bind(api.event_create, "cuEventCreate");
  from.bind(api.event_destroy, "cuEventDestroy_v2");
  from.bind(api.event_record, "cuEventRecord");
  from.bind(api.event_synchronize, "cuEventSynchronize");
  from.bind(api.event_elapsed_time, "cuEventElapsedTime");
  from.bind(api.stream_create, "cuStreamCreate");
  from.bind(api.stream_destroy, "cuStreamDestroy_v2");
  from.bind(api.stream_synchronize, "cuStreamSynchronize");
  from.bind(api.stream_begin_capture, "cuStreamBeginCapture_v2");
  from.bind(api.stream_end_capture, "cuStreamEndCapture");
  from.bind(api.graph_instantiate, "cuGraphInstantiateWithFlags");
  from.bind(api.graph_launch, "cuGraphLaunch");
  from.bind(api.graph_exec_destroy, "cuGraphExecDestroy");
  from.bind(api.graph_destroy, "cuGraphDestroy");
  from.bind(api.tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
  if (const Status complete = from.complete(); !complete) return fail_with(complete);
  return api;
}

Status check(const DriverApi& api, Result result, std::string_view call) {
  if (result == 0) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != 0 || name == nullptr) return fail("cuda: {}: error {}", call, result);
  if (api.get_error_string(result, &text) != 0 || text == nullptr) return fail("cuda: {}: {}", call, name);
  return fail("cuda: {}: {} ({})", call, name, text);
}

}  // namespace octalane::cuda
