#include "probe/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/aligned_buffer.h"
#include "core/parallel.h"
#include "probe/timing.h"

namespace octalane {
namespace {

constexpr int64_t kLeast = 16 << 10;
constexpr int64_t kMostTogether = int64_t{1} << 30;

std::vector<int64_t> sizes(const MemoryOptions& options) {
  const int64_t most = kMostTogether / std::ranges::max(options.threads);
  const int64_t beyond = std::clamp(2 * options.last_level_cache_bytes, kLeast, most) / kLeast * kLeast;
  std::vector<int64_t> all;
  for (int64_t bytes = kLeast; bytes < beyond; bytes *= 4) all.push_back(bytes);
  all.push_back(beyond);
  return all;
}

/// One buffer a thread, written by that thread so that its pages are there, and huge where the system gives such.
std::vector<AlignedBuffer<std::byte>> buffers(int threads, int64_t bytes) {
  constexpr int64_t kHugePage = 2 << 20;
  std::vector<AlignedBuffer<std::byte>> all;
  for (int thread = 0; thread < threads; ++thread) all.emplace_back(bytes);
  parallel_for(threads, threads, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      std::byte* data = all[static_cast<size_t>(thread)].data();
      const auto first = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
      const int64_t left = bytes - static_cast<int64_t>(first - reinterpret_cast<uintptr_t>(data));
      if (left >= kHugePage) {
        ::madvise(reinterpret_cast<void*>(first), static_cast<size_t>(left / kHugePage * kHugePage), MADV_HUGEPAGE);
      }
      std::memset(data, 1, static_cast<size_t>(bytes));
    }
  });
  return all;
}

}  // namespace

double MemoryRate::median() const { return median_of(gbps); }

std::vector<MemoryRate> measure_memory(std::span<const IsaTable* const> isas, const MemoryOptions& options,
                                       const std::function<bool(int, int)>& progress) {
  const auto reader =
      std::find_if(isas.rbegin(), isas.rend(), [](const IsaTable* isa) { return isa->read != nullptr; });
  if (reader == isas.rend()) return {};
  const auto read = (*reader)->read;
  std::vector<MemoryRate> rates;
  for (const int64_t bytes : sizes(options)) {
    for (const int threads : options.threads) rates.push_back({.bytes = bytes, .threads = threads, .gbps = {}});
  }
  const auto memory = buffers(std::ranges::max(options.threads), rates.back().bytes);
  std::atomic<uint64_t> seen = 0;
  const int all = static_cast<int>(rates.size()) * options.repeats;
  int done = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (MemoryRate& rate : rates) {
      if (progress && !progress(done++, all)) return {};
      const Sample sample = sample_rate(rate.threads, options.sample_seconds, [&](int thread, int64_t count) {
        uint64_t mine = 0;
        for (int64_t i = 0; i < count; ++i) mine |= read(memory[static_cast<size_t>(thread)].data(), rate.bytes);
        seen.fetch_or(mine, std::memory_order_relaxed);
      });
      rate.gbps.push_back(1e-9 * static_cast<double>(rate.bytes) * sample.units_per_second);
    }
  }
  return rates;
}

}  // namespace octalane
