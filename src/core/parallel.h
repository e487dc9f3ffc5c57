#pragma once

#include <cstdint>
#include <functional>

namespace octalane {

/// Cores that this process may use: the affinity mask, lowered by a cgroup CPU quota. At least 1.
int usable_cores();

/// Runs body(thread, begin, end) on up to `threads` threads over contiguous parts of [0, count), parts multiples of
/// `grain` but for the last. `thread` is in [0, threads) and unique among those running. Which thread gets which part
/// must not change a result. Runs on the calling thread alone when one part suffices.
void parallel_for(int threads, int64_t count, int64_t grain,
                  const std::function<void(int thread, int64_t begin, int64_t end)>& body);

}  // namespace octalane
