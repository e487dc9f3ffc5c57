// Work in order: streams, the points in time of their events, and graphs of launches. Of the device that is current on
// the thread; everything is freed with its owner, which must not outlive the session.
#pragma once

#include <functional>
#include <span>

#include "cuda/owned.h"

namespace octalane::cuda {

/// Launches, copies and fills one after the other; independent of other streams and of the driver's default one.
class Stream {
 public:
  static Expected<Stream> create(const DriverApi& api);

  StreamHandle handle() const { return handle_.get(); }
  const DriverApi& api() const { return *handle_.get_deleter().api; }

  /// Waits until everything enqueued is done. Reports what went wrong in it.
  Status synchronize() const;
  /// Host memory must stay as it is until synchronize().
  Status copy_in(Address to, std::span<const std::byte> from) const;
  Status copy_out(std::span<std::byte> to, Address from) const;
  Status copy(Address to, Address from, int64_t bytes) const;
  Status fill(Address to, uint8_t value, int64_t bytes) const;

 private:
  using Handle = Owned<StreamHandle, &DriverApi::stream_destroy>;
  explicit Stream(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

/// A point of a stream.
class Event {
 public:
  static Expected<Event> create(const DriverApi& api);

  /// Behind everything enqueued so far. In a graph, events take no time.
  Status record(const Stream& stream) const;
  /// Waits until the device has come to the point.
  Status synchronize() const;
  /// Waits until `end`; both must have been recorded. A resolution of about half a microsecond.
  static Expected<double> seconds_between(const Event& begin, const Event& end);

 private:
  using Handle = Owned<EventHandle, &DriverApi::event_destroy>;
  explicit Event(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

/// Launches that were captured once and start together, with next to no work for the host. What their arguments point
/// to must outlive it.
class Graph {
 public:
  /// What `work` enqueues on the stream becomes the graph and is not run. Its first error is the graph's; the stream is
  /// usable afterwards either way.
  static Expected<Graph> capture(const Stream& stream, const std::function<Status()>& work);

  Status launch(const Stream& stream) const;

 private:
  using Handle = Owned<GraphExecHandle, &DriverApi::graph_exec_destroy>;
  explicit Graph(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

}  // namespace octalane::cuda
