#include "core/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace octalane {
namespace {

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return omp_get_num_procs();
  return std::max(1, CPU_COUNT(&set));
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

}  // namespace

int usable_cores() {
  const int cores = affinity_cores();
  const int quota = quota_cores();
  return quota > 0 ? std::min(cores, quota) : cores;
}

void parallel_for(int threads, int64_t count, int64_t grain, const std::function<void(int, int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const auto parts = static_cast<int>(std::clamp<int64_t>(threads, 1, grains));
  if (parts == 1) return body(0, 0, count);
#pragma omp parallel num_threads(parts)
  {
    // The runtime may grant fewer threads than asked for: parts are then shared out among those there are.
    const int team = omp_get_num_threads();
    const int thread = omp_get_thread_num();
    for (int part = thread; part < parts; part += team) {
      const int64_t begin = grains * part / parts * grain;
      const int64_t end = std::min(count, grains * (part + 1) / parts * grain);
      if (begin < end) body(thread, begin, end);
    }
  }
}

}  // namespace octalane
