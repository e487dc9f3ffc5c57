#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace octalane {
namespace {

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&set);
}

/// Cores granted by the CPU quota of cgroup v2 (cpu.max: "quota period") or v1; 0 when there is none.
int quota_cores() {
  double quota = -1, period = 0;
  std::string text;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> text >> period) {
    if (text == "max") return 0;
    quota = std::atof(text.c_str());
  } else {
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(v1_quota >> quota) || !(v1_period >> period)) return 0;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` is no longer `old`: for some 30 microseconds awake, the gap between two products of a layer,
/// then asleep. Waiting longer awake, as an OpenMP runtime would, starves whoever shares the cores: with ten busy
/// processes on two cores a model decoded 1.3 tokens/s that way.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < 1000; ++spin) {
    if (const T now = value.load(std::memory_order_acquire); now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

/// Threads that help one calling thread. They end with it.
class Helpers {
 public:
  Helpers() = default;
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  ~Helpers() {
    task_ = nullptr;
    start();
    for (std::thread& thread : threads_) thread.join();
  }

  /// task(part) for every part in [0, parts), part 0 on the calling thread.
  void run(int parts, const std::function<void(int)>& task) {
    while (static_cast<int>(threads_.size()) < parts - 1) {
      const auto part = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back([this, part, seen = turn_.load()] { help(part, seen); });
    }
    task_ = &task;
    parts_ = parts;
    busy_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    start();
    task(0);
    for (int busy = busy_.load(std::memory_order_acquire); busy != 0;) busy = wait_for_change(busy_, busy);
  }

 private:
  void start() {
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
  }

  void help(int part, uint32_t seen) {
    for (;;) {
      seen = wait_for_change(turn_, seen);
      if (task_ == nullptr) return;
      if (part < parts_) (*task_)(part);
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  const std::function<void(int)>* task_ = nullptr;
  int parts_ = 0;
  std::atomic<uint32_t> turn_{0};
  std::atomic<int> busy_{0};
};

thread_local bool inside = false;  // a part that asks for more threads runs alone

}  // namespace

int usable_cores() {
  const int cores = std::max(1, affinity_cores());
  const int quota = quota_cores();
  return quota > 0 ? std::min(cores, quota) : cores;
}

void parallel_for(int threads, int64_t count, int64_t grain, const std::function<void(int, int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const auto parts = static_cast<int>(std::clamp<int64_t>(threads, 1, grains));
  if (parts == 1 || inside) return body(0, 0, count);

  thread_local Helpers helpers;
  helpers.run(parts, [&](int part) {
    inside = true;
    const int64_t begin = grains * part / parts * grain;
    const int64_t end = std::min(count, grains * (part + 1) / parts * grain);
    if (begin < end) body(part, begin, end);
    inside = false;
  });
}

}  // namespace octalane
