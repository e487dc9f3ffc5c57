#include "cuda/session.h"

#include <fmt/format.h>

namespace octalane::cuda {

void Buffer::Free::operator()(Address* address) const {
  api->mem_free(*address);
  delete address;
}

/// What was created so far; the destructor undoes that much.
struct Session::State {
  const DriverApi* api;
  DeviceInfo device;
  Ordinal ordinal = 0;
  ContextHandle context = nullptr;
  ModuleHandle module = nullptr;
  EventHandle begin = nullptr, end = nullptr;

  State(const DriverApi& functions, DeviceInfo info) : api(&functions), device(std::move(info)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (begin != nullptr) api->event_destroy(begin);
    if (end != nullptr) api->event_destroy(end);
    if (module != nullptr) api->module_unload(module);
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
  return state_->check(state_->api->memcpy_htod(to.address(), from.data(), from.size()), "cuMemcpyHtoD");
}

Status Session::copy_out(std::span<std::byte> to, const Buffer& from) const {
  return state_->check(state_->api->memcpy_dtoh(to.data(), from.address(), to.size()), "cuMemcpyDtoH");
}

Status Session::load(std::span<const std::byte> image) {
  const Result result = state_->api->module_load_data(&state_->module, image.data());
  if (result != 0) state_->module = nullptr;
  return state_->check(result, fmt::format("cuModuleLoadData for {} (compute capability {})", state_->device.name,
                                           capability_text(state_->device.capability)));
}

Expected<FunctionHandle> Session::find(const char* name, int shared_bytes) const {
  FunctionHandle function = nullptr;
  const Result found = state_->api->module_get_function(&function, state_->module, name);
  if (const Status s = state_->check(found, fmt::format("cuModuleGetFunction of {}", name)); !s) return fail_with(s);
  if (shared_bytes == 0) return function;
  const Result set = state_->api->func_set_attribute(function, FunctionAttribute::dynamic_shared_bytes, shared_bytes);
  if (const Status s = state_->check(set, fmt::format("cuFuncSetAttribute of {}: {} bytes", name, shared_bytes)); !s)
    return fail_with(s);
  return function;
}

Expected<double> Session::launch(FunctionHandle function, const Grid& grid, void** arguments) const {
  const DriverApi& api = *state_->api;
  const auto unsigned_of = [](int value) { return static_cast<unsigned>(value); };
  if (const Status s = state_->check(api.event_record(state_->begin, nullptr), "cuEventRecord"); !s)
    return fail_with(s);
  const Result launched = api.launch_kernel(function, unsigned_of(grid.blocks), 1, 1, unsigned_of(grid.threads), 1, 1,
                                            unsigned_of(grid.shared_bytes), nullptr, arguments, nullptr);
  if (const Status s = state_->check(launched, "cuLaunchKernel"); !s) return fail_with(s);
  if (const Status s = state_->check(api.event_record(state_->end, nullptr), "cuEventRecord"); !s) return fail_with(s);
  if (const Status s = state_->check(api.event_synchronize(state_->end), "cuEventSynchronize"); !s) return fail_with(s);
  float milliseconds = 0;
  const Result timed = api.event_elapsed_time(&milliseconds, state_->begin, state_->end);
  if (const Status s = state_->check(timed, "cuEventElapsedTime"); !s) return fail_with(s);
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace octalane::cuda
