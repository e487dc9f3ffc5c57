#include "probe/timing.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/parallel.h"

namespace octalane {
namespace {

/// Lets nobody pass before all have come.
class StartLine {
 public:
  explicit StartLine(int threads) : missing_(threads) {}
  void wait() {
    missing_.fetch_sub(1);
    while (missing_.load() > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> missing_;
};

struct Work {
  double units = 0, seconds = 0;
  double rate() const { return units / seconds; }
};

/// Calls of work(count) for `seconds`, or for up to four times that to get so many undisturbed ones. Returns units per
/// second: of the undisturbed calls if `own_core` and there are such, else of all.
double run_for(double seconds, int64_t count, bool own_core, const std::function<void(int64_t)>& work) {
  constexpr double kMostLost = 0.03;  // of a call, to other programs
  Work all, undisturbed;
  while (all.seconds < seconds || (own_core && undisturbed.seconds < seconds && all.seconds < 4 * seconds)) {
    const double had = thread_seconds(), start = probe_seconds();
    work(count);
    const double took = probe_seconds() - start, got = thread_seconds() - had;
    const bool kept_its_core = got > (1 - kMostLost) * took;
    for (Work* sum : {&all, &undisturbed}) {
      if (sum == &undisturbed && !kept_its_core) continue;
      sum->units += static_cast<double>(count);
      sum->seconds += took;
    }
  }
  return own_core && undisturbed.seconds > 0 ? undisturbed.rate() : all.rate();
}

/// How many units last about `seconds`.
int64_t units_lasting(double seconds, const std::function<void(int64_t)>& work) {
  for (int64_t count = 1;; count *= 4) {
    const double start = probe_seconds();
    work(count);
    const double took = probe_seconds() - start;
    if (took > seconds / 8)
      return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * seconds / took));
  }
}

}  // namespace

double probe_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

double core_clock_ghz() {
#if defined(__x86_64__)
  constexpr int kMultiplications = 20000;
  constexpr double kClocks = 3;
  uint64_t x = 3;
  const double start = probe_seconds();
  for (int i = 0; i < kMultiplications; i += 4) asm volatile(".rept 4\n\timul %0, %0\n\t.endr" : "+r"(x));
  return 1e-9 * kClocks * kMultiplications / (probe_seconds() - start);
#else
  return 0;
#endif
}

Sample sample_rate(int threads, double seconds, const std::function<void(int, int64_t)>& work) {
  StartLine start(threads);
  std::vector<Sample> samples(static_cast<size_t>(threads));
  const bool own_core = threads <= usable_cores();
  parallel_for(threads, threads, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const auto mine = [&](int64_t count) { work(static_cast<int>(thread), count); };
      const int64_t count = units_lasting(seconds / 10, mine);
      start.wait();
      run_for(seconds / 4, count, false, mine);
      Sample& sample = samples[static_cast<size_t>(thread)];
      sample.units_per_second = run_for(seconds, count, own_core, mine);
      sample.clock_ghz = core_clock_ghz();
    }
  });
  Sample all;
  for (const Sample& sample : samples) {
    all.units_per_second += sample.units_per_second;
    all.clock_ghz += sample.clock_ghz / threads;
  }
  return all;
}

}  // namespace octalane
