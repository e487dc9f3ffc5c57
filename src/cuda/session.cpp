#include "cuda/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace octalane::cuda {
namespace {

/// Launches, and does not wait.
Status start(const DriverApi& api, FunctionHandle function, const Grid& grid, StreamHandle stream, void** arguments) {
  const auto blocks = static_cast<unsigned>(grid.blocks), threads = static_cast<unsigned>(grid.threads);
  const auto blocks_y = static_cast<unsigned>(grid.blocks_y);
  const auto shared_bytes = static_cast<unsigned>(grid.shared_bytes);
  if (grid.cluster == 1 && !grid.early) {
    return check(
        api, api.launch_kernel(function, blocks, blocks_y, 1, threads, 1, 1, shared_bytes, stream, arguments, nullptr),
        "cuLaunchKernel");
  }
  LaunchAttribute attributes[2];
  unsigned count = 0;
  if (grid.cluster > 1) {
    attributes[count++] = {.id = LaunchAttribute::kClusterDimension,
                           .value = {static_cast<unsigned>(grid.cluster), 1, 1}};
  }
  if (grid.early) attributes[count++] = {.id = LaunchAttribute::kProgrammaticStreamSerialization, .value = {1}};
  const LaunchConfig config{.grid_x = blocks,
                            .grid_y = blocks_y,
                            .block_x = threads,
                            .shared_bytes = shared_bytes,
                            .stream = stream,
                            .attributes = attributes,
                            .attribute_count = count};
  return check(api, api.launch_kernel_ex(&config, function, arguments, nullptr), "cuLaunchKernelEx");
}

}  // namespace

void Buffer::Free::operator()(Address* address) const {
  api->mem_free(*address);
  delete address;
}

Expected<Module> Module::load(const DriverApi& api, std::span<const std::byte> image, const DeviceInfo& device) {
  ModuleHandle handle = nullptr;
  const Result loaded = api.module_load_data(&handle, image.data());
  const std::string call =
      fmt::format("cuModuleLoadData for {} (compute capability {})", device.name, capability_text(device.capability));
  if (const Status s = check(api, loaded, call); !s) return fail_with(s);
  return Module(Handle(handle, {&api}));
}

Expected<FunctionHandle> Module::find(const char* name, int shared_bytes) const {
  const DriverApi& api = *handle_.get_deleter().api;
  FunctionHandle function = nullptr;
  const Result found = api.module_get_function(&function, handle_.get(), name);
  if (const Status s = check(api, found, fmt::format("cuModuleGetFunction of {}", name)); !s) return fail_with(s);
  if (shared_bytes == 0) return function;
  const Result set = api.func_set_attribute(function, FunctionAttribute::dynamic_shared_bytes, shared_bytes);
  if (const Status s = check(api, set, fmt::format("cuFuncSetAttribute of {}: {} bytes", name, shared_bytes)); !s)
    return fail_with(s);
  return function;
}

/// What was created so far; the destructor undoes that much.
struct Session::State {
  const DriverApi* api;
  DeviceInfo device;
  Ordinal ordinal = 0;
  ContextHandle context = nullptr;
  std::optional<Module> module;
  EventHandle begin = nullptr, end = nullptr;

  State(const DriverApi& functions, DeviceInfo info) : api(&functions), device(std::move(info)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (begin != nullptr) api->event_destroy(begin);
    if (end != nullptr) api->event_destroy(end);
    module.reset();
    if (context != nullptr) api->primary_ctx_release(ordinal);
  }
  Status check(Result result, std::string_view call) const { return cuda::check(*api, result, call); }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Expected<Session> Session::open(const DriverApi& api, const DeviceInfo& device) {
  auto state = std::make_unique<State>(api, device);
  if (const Status s = state->check(api.device_get(&state->ordinal, device.index), "cuDeviceGet"); !s)
    return fail_with(s);
  if (const Status s =
          state->check(api.primary_ctx_retain(&state->context, state->ordinal), "cuDevicePrimaryCtxRetain");
      !s) {
    state->context = nullptr;
    return fail_with(s);
  }
  if (const Status s = state->check(api.ctx_set_current(state->context), "cuCtxSetCurrent"); !s) return fail_with(s);
  for (EventHandle* event : {&state->begin, &state->end}) {
    if (const Status s = state->check(api.event_create(event, 0), "cuEventCreate"); !s) {
      *event = nullptr;
      return fail_with(s);
    }
  }
  return Session(std::move(state));
}

const DeviceInfo& Session::device() const { return state_->device; }

Expected<Buffer> Session::allocate(int64_t bytes) const {
  Address address = 0;
  const Result result = state_->api->mem_alloc(&address, static_cast<size_t>(bytes));
  if (const Status s = state_->check(result, fmt::format("cuMemAlloc of {} bytes", bytes)); !s) return fail_with(s);
  return Buffer(*state_->api, address, bytes);
}

Status Session::copy_in(const Buffer& to, std::span<const std::byte> from) const {
  const Result copied = state_->api->memcpy_htod(to.address(), from.data(), from.size());
  if (const Status s = state_->check(copied, "cuMemcpyHtoD"); !s) return s;
  // The driver may return with the bytes still on their way, which streams of ours would not wait for.
  return state_->check(state_->api->ctx_synchronize(), "cuCtxSynchronize");
}

Status Session::copy_out(std::span<std::byte> to, const Buffer& from) const {
  return state_->check(state_->api->memcpy_dtoh(to.data(), from.address(), to.size()), "cuMemcpyDtoH");
}

Expected<Module> Session::load_module(std::span<const std::byte> image) const {
  return Module::load(*state_->api, image, state_->device);
}

Expected<Buffer> Session::upload(std::span<const std::byte> bytes) const {
  Expected<Buffer> buffer = allocate(std::max<int64_t>(16, static_cast<int64_t>(bytes.size())));
  if (!buffer || bytes.empty()) return buffer;
  if (const Status copied = copy_in(*buffer, bytes); !copied) return fail_with(copied);
  return buffer;
}

Status Session::load(std::span<const std::byte> image) {
  Expected<Module> module = load_module(image);
  if (!module) return fail_with(module);
  state_->module.emplace(std::move(*module));
  return {};
}

Expected<FunctionHandle> Session::find(const char* name, int shared_bytes) const {
  if (!state_->module) return fail("cuda: {}: wanted a loaded image, got none", name);
  return state_->module->find(name, shared_bytes);
}

Expected<int> Session::attribute(FunctionHandle function, FunctionAttribute which) const {
  int value = 0;
  const Result got = state_->api->func_get_attribute(&value, which, function);
  const std::string call = fmt::format("cuFuncGetAttribute of attribute {}", static_cast<int>(which));
  if (const Status s = state_->check(got, call); !s) return fail_with(s);
  return value;
}

Expected<Stream> Session::stream() const { return Stream::create(*state_->api); }

Expected<Event> Session::event() const { return Event::create(*state_->api); }

Status Session::enqueue_pointers(FunctionHandle function, const Grid& grid, const Stream& stream,
                                 void** arguments) const {
  return start(*state_->api, function, grid, stream.handle(), arguments);
}

Expected<double> Session::launch(FunctionHandle function, const Grid& grid, void** arguments) const {
  const DriverApi& api = *state_->api;
  if (const Status s = state_->check(api.event_record(state_->begin, nullptr), "cuEventRecord"); !s)
    return fail_with(s);
  if (const Status s = start(api, function, grid, nullptr, arguments); !s) return fail_with(s);
  if (const Status s = state_->check(api.event_record(state_->end, nullptr), "cuEventRecord"); !s) return fail_with(s);
  if (const Status s = state_->check(api.event_synchronize(state_->end), "cuEventSynchronize"); !s) return fail_with(s);
  float milliseconds = 0;
  const Result timed = api.event_elapsed_time(&milliseconds, state_->begin, state_->end);
  if (const Status s = state_->check(timed, "cuEventElapsedTime"); !s) return fail_with(s);
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace octalane::cuda
