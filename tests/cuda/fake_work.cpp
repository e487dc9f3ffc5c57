#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cuda/fake_driver.h"

namespace octalane::cuda {

struct StreamState {
  bool capturing = false;
  std::vector<test::FakeLaunch> captured;
};
struct EventState {
  double seconds = -1;
};
struct FunctionState {
  std::string name;
};
struct ModuleState {
  std::vector<std::unique_ptr<FunctionState>> functions;
};
struct GraphState {
  std::vector<test::FakeLaunch> launches;
};
struct GraphExecState {
  std::vector<test::FakeLaunch> launches;
};

}  // namespace octalane::cuda

namespace octalane::test {
namespace {

using namespace cuda;

template <class State>
Result create(const char* call, State** to, State made = {}) {
  if (const Result result = fake_result(call); result != 0) return result;
  *to = new State(std::move(made));
  ++fake_work().live;
  return 0;
}

template <class State>
Result destroy(State* state) {
  delete state;
  --fake_work().live;
  return 0;
}

void run(const FakeLaunch& launch) {
  fake_work().launches.push_back(launch);
  fake_work().seconds += launch.seconds;
}

Result start(const char* call, FunctionHandle function, FakeLaunch launch, StreamHandle stream, void** arguments) {
  if (const Result result = fake_result(call); result != 0) return result;
  launch.function = function->name;
  if (fake_work().kernel) launch.seconds = fake_work().kernel(launch.function, arguments);
  if (stream == nullptr || !stream->capturing) {
    run(launch);
  } else {
    launch.in_graph = true;
    stream->captured.push_back(launch);
    ++fake_work().captured;
  }
  return 0;
}

Result copy(const char* call, void* to, const void* from, size_t bytes) {
  if (const Result result = fake_result(call); result != 0) return result;
  std::memcpy(to, from, bytes);
  return 0;
}

void* pointer(Address address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

constexpr std::align_val_t kAllocationAlignment{256};  // as the driver's

void add_memory(DriverApi& api) {
  api.mem_alloc = [](Address* to, size_t bytes) {
    if (const Result result = fake_result("cuMemAlloc"); result != 0) return result;
    *to = reinterpret_cast<uintptr_t>(::operator new(bytes, kAllocationAlignment));
    ++fake_work().live;
    return 0;
  };
  api.mem_free = [](Address address) {
    ::operator delete(pointer(address), kAllocationAlignment);
    --fake_work().live;
    return 0;
  };
  api.memcpy_htod = [](Address to, const void* from, size_t bytes) {
    return copy("cuMemcpyHtoD", pointer(to), from, bytes);
  };
  api.memcpy_dtoh = [](void* to, Address from, size_t bytes) { return copy("cuMemcpyDtoH", to, pointer(from), bytes); };
  api.memcpy_htod_async = [](Address to, const void* from, size_t bytes, StreamHandle) {
    return copy("cuMemcpyHtoDAsync", pointer(to), from, bytes);
  };
  api.memcpy_dtoh_async = [](void* to, Address from, size_t bytes, StreamHandle) {
    return copy("cuMemcpyDtoHAsync", to, pointer(from), bytes);
  };
  api.memcpy_dtod_async = [](Address to, Address from, size_t bytes, StreamHandle) {
    return copy("cuMemcpyDtoDAsync", pointer(to), pointer(from), bytes);
  };
  api.memset_d8_async = [](Address to, unsigned char value, size_t bytes, StreamHandle) {
    if (const Result result = fake_result("cuMemsetD8Async"); result != 0) return result;
    std::memset(pointer(to), value, bytes);
    return 0;
  };
}

void add_modules(DriverApi& api) {
  api.primary_ctx_retain = [](ContextHandle* context, Ordinal) {
    if (const Result result = fake_result("cuDevicePrimaryCtxRetain"); result != 0) return result;
    static int one;
    *context = reinterpret_cast<ContextHandle>(&one);
    ++fake_work().live;
    return 0;
  };
  api.primary_ctx_release = [](Ordinal) { return --fake_work().live, 0; };
  api.ctx_set_current = [](ContextHandle) { return fake_result("cuCtxSetCurrent"); };
  api.ctx_synchronize = [] { return fake_result("cuCtxSynchronize"); };
  api.module_load_data = [](ModuleHandle* module, const void*) { return create("cuModuleLoadData", module); };
  api.module_unload = [](ModuleHandle module) { return destroy(module); };
  api.module_get_function = [](FunctionHandle* function, ModuleHandle module, const char* name) {
    if (const Result result = fake_result("cuModuleGetFunction"); result != 0) return result;
    *function = module->functions.emplace_back(new FunctionState{name}).get();
    return 0;
  };
  api.func_set_attribute = [](FunctionHandle, FunctionAttribute, int) { return fake_result("cuFuncSetAttribute"); };
  api.func_get_attribute = [](int* value, FunctionAttribute which, FunctionHandle) {
    *value = which == FunctionAttribute::registers ? 168 : 0;
    return fake_result("cuFuncGetAttribute");
  };
  api.launch_kernel = [](FunctionHandle function, unsigned blocks, unsigned blocks_y, unsigned, unsigned threads,
                         unsigned, unsigned, unsigned shared_bytes, StreamHandle stream, void** arguments, void**) {
    return start("cuLaunchKernel", function,
                 {.blocks = blocks, .threads = threads, .shared_bytes = shared_bytes, .blocks_y = blocks_y}, stream,
                 arguments);
  };
  api.launch_kernel_ex = [](const LaunchConfig* config, FunctionHandle function, void** arguments, void**) {
    FakeLaunch launch{.blocks = config->grid_x,
                      .threads = config->block_x,
                      .shared_bytes = config->shared_bytes,
                      .blocks_y = config->grid_y};
    for (unsigned i = 0; i < config->attribute_count; ++i) {
      if (config->attributes[i].id == 4) launch.cluster = config->attributes[i].value[0];
    }
    return start("cuLaunchKernelEx", function, launch, config->stream, arguments);
  };
}

void add_events(DriverApi& api) {
  api.event_create = [](EventHandle* event, unsigned) { return create("cuEventCreate", event); };
  api.event_destroy = [](EventHandle event) { return destroy(event); };
  api.event_record = [](EventHandle event, StreamHandle) {
    event->seconds = fake_work().seconds;
    return fake_result("cuEventRecord");
  };
  api.event_synchronize = [](EventHandle) { return fake_result("cuEventSynchronize"); };
  api.event_elapsed_time = [](float* milliseconds, EventHandle begin, EventHandle end) {
    *milliseconds = static_cast<float>(1e3 * (end->seconds - begin->seconds));
    return fake_result("cuEventElapsedTime");
  };
}

void add_streams(DriverApi& api) {
  api.stream_create = [](StreamHandle* stream, unsigned) { return create("cuStreamCreate", stream); };
  api.stream_destroy = [](StreamHandle stream) { return destroy(stream); };
  api.stream_synchronize = [](StreamHandle) { return fake_result("cuStreamSynchronize"); };
  api.stream_begin_capture = [](StreamHandle stream, CaptureMode) {
    if (const Result result = fake_result("cuStreamBeginCapture"); result != 0) return result;
    stream->capturing = true;
    return 0;
  };
  api.stream_end_capture = [](StreamHandle stream, GraphHandle* graph) {
    stream->capturing = false;
    return create("cuStreamEndCapture", graph, GraphState{std::exchange(stream->captured, {})});
  };
  api.graph_instantiate = [](GraphExecHandle* exec, GraphHandle graph, unsigned long long) {
    return create("cuGraphInstantiateWithFlags", exec, GraphExecState{graph->launches});
  };
  api.graph_launch = [](GraphExecHandle exec, StreamHandle) {
    if (const Result result = fake_result("cuGraphLaunch"); result != 0) return result;
    ++fake_work().graph_launches;
    std::ranges::for_each(exec->launches, run);
    return 0;
  };
  api.graph_exec_destroy = [](GraphExecHandle exec) { return destroy(exec); };
  api.graph_destroy = [](GraphHandle graph) { return destroy(graph); };
}

}  // namespace

FakeWork& fake_work() {
  static FakeWork work;
  return work;
}

void add_fake_work(DriverApi& api) {
  api.tensor_map_encode_tiled = [](TensorMap*, TensorElement, uint32_t, void*, const uint64_t*, const uint64_t*,
                                   const uint32_t*, const uint32_t*, int, int, int,
                                   int) { return fake_result("cuTensorMapEncodeTiled"); };
  add_memory(api);
  add_modules(api);
  add_events(api);
  add_streams(api);
}

}  // namespace octalane::test
