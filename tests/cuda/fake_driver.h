// A driver of two made-up devices. One call at a time can be told to fail. It runs nothing, but its clock goes on: a
// launch takes the time that a test says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace octalane::test {

inline constexpr int kOutOfMemory = 2, kUnknownError = 999, kNamelessError = 12345;

/// `failing` is a name as "cuDeviceGetCount", or "" for none; `with` what it then returns. Forgets all fake_work().
cuda::DriverApi fake_driver(const char* failing = "", int with = kUnknownError, int devices = 2);

struct FakeLaunch {
  std::string function;
  unsigned blocks = 0, threads = 0, shared_bytes = 0, cluster = 1, blocks_y = 1;
  bool in_graph = false;
  double seconds = 0;
};

/// What the driver was made to do.
struct FakeWork {
  int live = 0;        ///< contexts, modules, streams, events, graphs and allocations that were not given back
  double seconds = 0;  ///< the device's clock
  std::vector<FakeLaunch> launches;  ///< that ran, those of graphs each time
  int graph_launches = 0, captured = 0;
  /// Called by every launch, also while it is captured; returns its seconds.
  std::function<double(const std::string& function, void** arguments)> kernel;
};
FakeWork& fake_work();

/// What the call returns.
int fake_result(const char* call);
/// The calls of contexts, memory, modules, streams, events and graphs.
void add_fake_work(cuda::DriverApi& api);

}  // namespace octalane::test
