#include "cuda/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "cuda/code.h"
#include "cuda/probe_loops.h"
#include "cuda/probe_shapes.h"

namespace octalane::cuda {
namespace {

constexpr int64_t kReadGranules[] = {1, 2, 4, 8, 16, 32, 128, 512};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// A loop on the device with operands of its own, and how many iterations a sample takes.
struct Task {
  Loop loop;
  FunctionHandle function = nullptr;
  Buffer operands, scales;
  size_t rate = 0;  ///< index into the rates
  int64_t iterations = 0;
};

std::vector<float> scales_of(int count, bool ones) {
  std::vector<float> scales(static_cast<size_t>(count), 1.0f);
  std::minstd_rand random(2);
  std::uniform_real_distribution<float> draw(0.005f, 0.02f);
  if (!ones) std::ranges::generate(scales, [&] { return draw(random); });
  return scales;
}

/// The multiply loops: made, checked, timed.
class LoopBench {
 public:
  static Expected<LoopBench> create(const Session& session) {
    const std::vector<Loop> loops = loops_for(session.device().capability);
    int64_t out_bytes = 0;
    for (const Loop& loop : loops) {
      out_bytes =
          std::max(out_bytes, 4 * session.device().multiprocessors * loop.grid.threads * loop.results_per_thread);
    }
    Expected<Buffer> out = session.allocate(out_bytes);
    if (!out) return fail_with(out);
    Expected<Buffer> clocks = session.allocate(sizeof(int64_t));
    if (!clocks) return fail_with(clocks);
    LoopBench bench(session, std::move(*out), std::move(*clocks));
    for (const Loop& loop : loops) {
      if (const Status added = bench.add(loop); !added) return fail_with(added);
    }
    return bench;
  }

  /// Operands and scales of one: each result must be the number of columns that went into it.
  Status check() {
    for (const Task& task : tasks_) {
      if (const Status filled = fill(task, true); !filled) return fail_with(filled);
      constexpr int64_t kIterations = 5;
      if (const Expected<double> ran = run(task, kIterations); !ran) return fail_with(ran);
      if (const Status right = check_results(task, kIterations); !right) return fail_with(right);
      if (const Status filled = fill(task, false); !filled) return fail_with(filled);
    }
    return {};
  }

  /// Settles how many iterations a sample of so many seconds takes.
  Status calibrate(double seconds) {
    for (Task& task : tasks_) {
      constexpr int64_t kFew = 256;
      if (const Expected<double> warm = run(task, kFew); !warm) return fail_with(warm);
      const Expected<double> took = run(task, kFew);
      if (!took) return fail_with(took);
      task.iterations = std::max<int64_t>(1, static_cast<int64_t>(kFew * seconds / std::max(*took, 1e-9)));
    }
    return {};
  }

  Status sample(Task& task) {
    if (const Expected<double> warm = run(task, task.iterations / 4 + 1); !warm) return fail_with(warm);
    const Expected<double> seconds = run(task, task.iterations);
    if (!seconds) return fail_with(seconds);
    int64_t clocks = 0;
    if (const Status got = session_->copy_out(std::as_writable_bytes(std::span(&clocks, 1)), clocks_); !got)
      return fail_with(got);
    InstructionRate& rate = rates[task.rate];
    LoopRate& to = task.loop.drain_columns == 0 ? rate.pure : rate.drained[task.loop.drain_columns];
    const double blocks = session_->device().multiprocessors;
    to.tops.push_back(1e-12 * task.loop.ops() * blocks * static_cast<double>(task.iterations) / *seconds);
    to.clock_ghz.push_back(1e-9 * static_cast<double>(clocks) / *seconds);
    return {};
  }

  std::vector<Task>& tasks() { return tasks_; }
  std::vector<InstructionRate> rates;

 private:
  LoopBench(const Session& session, Buffer out, Buffer clocks)
      : session_(&session), out_(std::move(out)), clocks_(std::move(clocks)) {}

  Status add(const Loop& loop) {
    const Expected<FunctionHandle> function = session_->find(loop.function.c_str(), loop.grid.shared_bytes);
    if (!function) return fail_with(function);
    Expected<Buffer> operands = session_->allocate(loop.operand_bytes);
    if (!operands) return fail_with(operands);
    Expected<Buffer> scales = session_->allocate(loop.scales * int64_t{4});
    if (!scales) return fail_with(scales);
    if (rates.empty() || rates.back().instruction != loop.instruction) {
      rates.push_back({.instruction = loop.instruction,
                       .ptx = loop.ptx,
                       .isa = loop.isa,
                       .lane = lane_name(loop.element),
                       .element = element_name(loop.element),
                       .emulated = loop.emulated});
    }
    tasks_.push_back({loop, *function, std::move(*operands), std::move(*scales), rates.size() - 1});
    return {};
  }

  Status fill(const Task& task, bool ones) const {
    const auto operands = operands_of(task.loop.element, task.loop.operand_bytes, ones);
    if (const Status copied = session_->copy_in(task.operands, operands); !copied) return fail_with(copied);
    return session_->copy_in(task.scales, bytes_of(scales_of(task.loop.scales, ones)));
  }

  Expected<double> run(const Task& task, int64_t iterations) const {
    Grid grid = task.loop.grid;
    grid.blocks = session_->device().multiprocessors;
    return session_->run(task.function, grid, task.operands.address(), task.scales.address(), out_.address(),
                         iterations, clocks_.address());
  }

  Status check_results(const Task& task, int64_t iterations) const {
    const Loop& loop = task.loop;
    const int64_t count = session_->device().multiprocessors * loop.grid.threads * loop.results_per_thread;
    std::vector<uint32_t> results(static_cast<size_t>(count));
    if (const Status got = session_->copy_out(std::as_writable_bytes(std::span(results)), out_); !got)
      return fail_with(got);
    const int64_t wanted = iterations * loop.columns;
    for (int64_t i = 0; i < count; ++i) {
      float number = 0;
      std::memcpy(&number, &results[static_cast<size_t>(i)], sizeof number);
      const double got =
          loop.integer_results() ? static_cast<double>(static_cast<int32_t>(results[static_cast<size_t>(i)])) : number;
      if (got == static_cast<double>(wanted)) continue;
      return fail("cuda: {}: result {} of {} ones: wanted {}, got {}", loop.function, i, wanted, wanted, got);
    }
    return {};
  }

  const Session* session_;
  Buffer out_, clocks_;
  std::vector<Task> tasks_;
};

/// Reads of working sets.
class ReadBench {
 public:
  static Expected<ReadBench> create(const Session& session) {
    const DeviceInfo& device = session.device();
    const int blocks = kReadBlocks * device.multiprocessors;
    int64_t most = 0;
    for (const int64_t granules : kReadGranules) {
      const int64_t bytes = granules * blocks * kReadThreads * kReadUnroll * 16;
      if (bytes <= device.memory_bytes / 4) most = bytes;
    }
    const Expected<FunctionHandle> fill = session.find("fill_words");
    if (!fill) return fail_with(fill);
    const Expected<FunctionHandle> read = session.find("read_memory");
    if (!read) return fail_with(read);
    Expected<Buffer> data = session.allocate(most);
    if (!data) return fail_with(data);
    Expected<Buffer> out = session.allocate(int64_t{4} * blocks * kReadThreads);
    if (!out) return fail_with(out);
    return ReadBench(session, *fill, *read, std::move(*data), std::move(*out));
  }

  /// Ones in memory: the threads' sums must be the number of words read.
  Status check() {
    if (const Status filled = fill(0); !filled) return fail_with(filled);
    for (const MemoryRate& rate : rates) {
      constexpr int64_t kPasses = 2;
      if (const Expected<double> ran = run(rate.bytes, kPasses); !ran) return fail_with(ran);
      std::vector<uint32_t> sums(static_cast<size_t>(out_.bytes() / 4));
      if (const Status got = session_->copy_out(std::as_writable_bytes(std::span(sums)), out_); !got)
        return fail_with(got);
      int64_t sum = 0;
      for (const uint32_t part : sums) sum += part;
      const int64_t wanted = kPasses * rate.bytes / 4;
      if (sum != wanted) return fail("cuda: read_memory of {} bytes: wanted {} words, got {}", rate.bytes, wanted, sum);
    }
    return fill(0x9E3779B9);
  }

  Status sample(size_t index, double seconds) {
    MemoryRate& rate = rates[index];
    const Expected<double> once = run(rate.bytes, 2);
    if (!once) return fail_with(once);
    const auto passes = static_cast<int64_t>(std::max(2.0, 2 * seconds / std::max(*once, 1e-9)));
    const Expected<double> took = run(rate.bytes, passes);
    if (!took) return fail_with(took);
    rate.gbps.push_back(1e-9 * static_cast<double>(rate.bytes * passes) / *took);
    return {};
  }

  std::vector<MemoryRate> rates;

 private:
  ReadBench(const Session& session, FunctionHandle fill, FunctionHandle read, Buffer data, Buffer out)
      : session_(&session), fill_(fill), read_(read), data_(std::move(data)), out_(std::move(out)) {
    for (const int64_t granules : kReadGranules) {
      if (granules * granule_bytes() <= data_.bytes())
        rates.push_back({.bytes = granules * granule_bytes(), .gbps = {}});
    }
  }

  Grid grid() const { return {.blocks = static_cast<int>(out_.bytes() / 4 / kReadThreads), .threads = kReadThreads}; }
  int64_t granule_bytes() const { return out_.bytes() / 4 * kReadUnroll * 16; }
  Status fill(uint32_t noise) const {
    const Expected<double> filled = session_->run(fill_, grid(), data_.address(), data_.bytes() / 4, noise);
    return filled ? Status{} : fail_with(filled);
  }
  Expected<double> run(int64_t bytes, int64_t passes) const {
    return session_->run(read_, grid(), data_.address(), bytes / granule_bytes(), passes, out_.address());
  }

  const Session* session_;
  FunctionHandle fill_, read_;
  Buffer data_, out_;
};

}  // namespace

std::string why_not(const DeviceInfo& device) {
  if (probe_code().empty()) return "built without nvcc: there is no device code in this octalane";
  if (!loops_for(device.capability).empty()) return "";
  return fmt::format("{}: wanted compute capability 8.x or 9.0, got {}", device.name,
                     capability_text(device.capability));
}

Expected<ProbeResult> probe(const DriverApi& api, const DeviceInfo& device, const ProbeOptions& options,
                            const std::function<bool(int, int)>& progress) {
  if (const std::string why = why_not(device); !why.empty()) return fail("cuda: {}", why);
  ProbeResult result;
  result.before = read_state(device.pci_bus_id);
  Expected<Session> session = Session::open(api, device);
  if (!session) return fail_with(session);
  if (const Status loaded = session->load(probe_code()); !loaded) return fail_with(loaded);
  Expected<LoopBench> loops = LoopBench::create(*session);
  if (!loops) return fail_with(loops);
  Expected<ReadBench> reads = ReadBench::create(*session);
  if (!reads) return fail_with(reads);
  if (const Status right = loops->check(); !right) return fail_with(right);
  if (const Status right = reads->check(); !right) return fail_with(right);
  result.checked_loops = static_cast<int>(loops->tasks().size() + reads->rates.size());
  if (const Status ready = loops->calibrate(options.sample_seconds); !ready) return fail_with(ready);

  const int all = result.checked_loops * options.repeats;
  int done = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (size_t i = 0; i < reads->rates.size(); ++i) {
      if (progress && !progress(done++, all)) return fail("cuda: interrupted");
      if (const Status sampled = reads->sample(i, options.sample_seconds); !sampled) return fail_with(sampled);
    }
    for (Task& task : loops->tasks()) {
      if (progress && !progress(done++, all)) return fail("cuda: interrupted");
      if (const Status sampled = loops->sample(task); !sampled) return fail_with(sampled);
    }
  }
  result.after = read_state(device.pci_bus_id);
  result.rates = std::move(loops->rates);
  result.memory = std::move(reads->rates);
  return result;
}

}  // namespace octalane::cuda
