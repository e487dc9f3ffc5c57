#include "cuda/stream.h"

#include <fmt/format.h>

namespace octalane::cuda {

Expected<Stream> Stream::create(const DriverApi& api) {
  constexpr unsigned kNonBlocking = 1;
  StreamHandle handle = nullptr;
  if (const Status s = check(api, api.stream_create(&handle, kNonBlocking), "cuStreamCreate"); !s) return fail_with(s);
  return Stream(Handle(handle, {&api}));
}

Status Stream::synchronize() const { return check(api(), api().stream_synchronize(handle()), "cuStreamSynchronize"); }

Status Stream::copy_in(Address to, std::span<const std::byte> from) const {
  return check(api(), api().memcpy_htod_async(to, from.data(), from.size(), handle()), "cuMemcpyHtoDAsync");
}

Status Stream::copy_out(std::span<std::byte> to, Address from) const {
  return check(api(), api().memcpy_dtoh_async(to.data(), from, to.size(), handle()), "cuMemcpyDtoHAsync");
}

Status Stream::copy(Address to, Address from, int64_t bytes) const {
  return check(api(), api().memcpy_dtod_async(to, from, static_cast<size_t>(bytes), handle()), "cuMemcpyDtoDAsync");
}

Status Stream::fill(Address to, uint8_t value, int64_t bytes) const {
  return check(api(), api().memset_d8_async(to, value, static_cast<size_t>(bytes), handle()), "cuMemsetD8Async");
}

Expected<Event> Event::create(const DriverApi& api) {
  EventHandle handle = nullptr;
  if (const Status s = check(api, api.event_create(&handle, 0), "cuEventCreate"); !s) return fail_with(s);
  return Event(Handle(handle, {&api}));
}

Status Event::record(const Stream& stream) const {
  const DriverApi& api = stream.api();
  return check(api, api.event_record(handle_.get(), stream.handle()), "cuEventRecord");
}

Status Event::synchronize() const {
  const DriverApi& api = *handle_.get_deleter().api;
  return check(api, api.event_synchronize(handle_.get()), "cuEventSynchronize");
}

Expected<double> Event::seconds_between(const Event& begin, const Event& end) {
  if (const Status s = end.synchronize(); !s) return fail_with(s);
  const DriverApi& api = *end.handle_.get_deleter().api;
  float milliseconds = 0;
  const Result timed = api.event_elapsed_time(&milliseconds, begin.handle_.get(), end.handle_.get());
  if (const Status s = check(api, timed, "cuEventElapsedTime"); !s) return fail_with(s);
  return 1e-3 * static_cast<double>(milliseconds);
}

Expected<Graph> Graph::capture(const Stream& stream, const std::function<Status()>& work) {
  const DriverApi& api = stream.api();
  // Of this thread alone: other threads may go on allocating.
  const Result begun = api.stream_begin_capture(stream.handle(), CaptureMode::this_thread);
  if (const Status s = check(api, begun, "cuStreamBeginCapture"); !s) return fail_with(s);
  const Status worked = work();
  GraphHandle captured = nullptr;
  const Result ended = api.stream_end_capture(stream.handle(), &captured);
  const Owned<GraphHandle, &DriverApi::graph_destroy> graph(captured, {&api});
  if (!worked) return fail_with(worked);
  if (const Status s = check(api, ended, "cuStreamEndCapture"); !s) return fail_with(s);
  GraphExecHandle handle = nullptr;
  const Result made = api.graph_instantiate(&handle, graph.get(), 0);
  if (const Status s = check(api, made, "cuGraphInstantiateWithFlags"); !s) return fail_with(s);
  return Graph(Handle(handle, {&api}));
}

Status Graph::launch(const Stream& stream) const {
  const DriverApi& api = stream.api();
  return check(api, api.graph_launch(handle_.get(), stream.handle()), "cuGraphLaunch");
}

}  // namespace octalane::cuda
