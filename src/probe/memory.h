// How fast this machine reads memory, by the size of what is read again and again.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace octalane {

struct MemoryRate {
  int64_t bytes = 0;  ///< read by each thread
  int threads = 1;
  std::vector<double> gbps;  ///< 10^9 bytes per second of all threads together, sample by sample

  double median() const;
};

struct MemoryOptions {
  std::vector<int> threads{1};
  int repeats = 7;
  double sample_seconds = 0.01;
  int64_t last_level_cache_bytes = 32 << 20;
};

/// 16 KiB and up by factors of four to twice the last-level cache, all threads together at most 1 GiB. Read by the
/// widest loads of these instruction sets. `progress` as in measure_instructions.
std::vector<MemoryRate> measure_memory(std::span<const IsaTable* const> isas, const MemoryOptions& options,
                                       const std::function<bool(int done, int all)>& progress = {});

}  // namespace octalane
