#include "cuda/driver.h"

#include "cuda/shared_library.h"

namespace octalane::cuda {

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
  from.bind(api.launch_kernel, "cuLaunchKernel");
  from.bind(api.mem_alloc, "cuMemAlloc_v2");
  from.bind(api.mem_free, "cuMemFree_v2");
  from.bind(api.memcpy_htod, "cuMemcpyHtoD_v2");
  from.bind(api.memcpy_dtoh, "cuMemcpyDtoH_v2");
  from.bind(api.event_create, "cuEventCreate");
  from.bind(api.event_destroy, "cuEventDestroy_v2");
  from.bind(api.event_record, "cuEventRecord");
  from.bind(api.event_synchronize, "cuEventSynchronize");
  from.bind(api.event_elapsed_time, "cuEventElapsedTime");
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
