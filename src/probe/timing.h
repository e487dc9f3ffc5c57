// Clocks, medians, and work done by several threads at once for a while.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace octalane {

/// Seconds on a clock that only goes forward.
double probe_seconds();

/// Seconds that the calling thread has had a core.
double thread_seconds();

/// Sorts a copy. Precondition: not empty.
double median_of(std::vector<double> samples);

/// Clock of the core that runs this, in GHz: a chain of dependent multiplications, three clocks each on every x86 core
/// since 2008, timed over some ten microseconds. 0 on other machines.
double core_clock_ghz();

struct Sample {
  double units_per_second = 0;  ///< of all threads together
  double clock_ghz = 0;         ///< right after, the mean over the threads
};

/// Runs work(thread, count) on `threads` threads at once, `count` chosen so that a call lasts about a tenth of
/// `seconds`: first to warm up, for a quarter of `seconds`, then timed for `seconds`. A unit is what count counts.
/// Calls during which a thread lost its core to another program are left out, unless there are more threads than cores.
Sample sample_rate(int threads, double seconds, const std::function<void(int thread, int64_t count)>& work);

}  // namespace octalane
