#include "probe/instructions.h"

#include <algorithm>
#include <string_view>

#include "probe/operands.h"
#include "probe/timing.h"

namespace octalane {
namespace {

/// One loop on a number of threads, and where its samples go.
struct Task {
  const ProbeLoop* loop;
  int threads;
  size_t rate;  ///< index into the rates
  std::vector<double> clocks{};
};

LoopRate& loop_rate(InstructionRate& rate, ProbeKind kind) {
  const auto made = [](std::optional<LoopRate>& drain) -> LoopRate& { return drain ? *drain : drain.emplace(); };
  switch (kind) {
    case ProbeKind::registers: return rate.registers;
    case ProbeKind::loaded: return rate.loaded;
    case ProbeKind::drain_32: return made(rate.drain_32);
    case ProbeKind::drain_256: return made(rate.drain_256);
    case ProbeKind::drain_row: return made(rate.drain_row);
  }
  return rate.registers;
}

/// Tasks in the order of a round, and a rate for each instruction and number of threads.
std::vector<Task> list_tasks(std::span<const IsaTable* const> isas, const InstructionOptions& options,
                             std::vector<InstructionRate>& rates) {
  std::vector<Task> tasks;
  for (const int threads : options.threads) {
    for (const IsaTable* isa : isas) {
      for (const ProbeLoop& loop : isa->probes) {
        if (!options.instruction.empty() && options.instruction != loop.instruction) continue;
        if (loop.available != nullptr && !loop.available()) continue;
        const auto same = [&](const InstructionRate& rate) {
          return rate.instruction == loop.instruction && rate.isa == isa->name && rate.threads == threads;
        };
        const auto found = std::ranges::find_if(rates, same);
        tasks.push_back({&loop, threads, static_cast<size_t>(found - rates.begin())});
        if (found != rates.end()) continue;
        rates.push_back({.instruction = loop.instruction,
                         .isa = isa->name,
                         .lane = loop.lane,
                         .element = loop.element,
                         .threads = threads});
      }
    }
  }
  return tasks;
}

/// Every thread has operands of its own, of each type.
class OperandPool {
 public:
  explicit OperandPool(int threads) {
    for (int thread = 0; thread < threads; ++thread) {
      for (int element = 0; element < kElements; ++element) {
        all_.emplace_back(static_cast<ProbeElement>(element), static_cast<uint32_t>(1 + thread));
      }
    }
  }
  const ProbeOperands& of(int thread, ProbeElement element) const {
    return all_[static_cast<size_t>(thread * kElements + static_cast<int>(element))];
  }

 private:
  static constexpr int kElements = 4;
  std::vector<ProbeOperands> all_;
};

}  // namespace

double LoopRate::median() const { return median_of(tops); }

std::vector<InstructionRate> measure_instructions(std::span<const IsaTable* const> isas,
                                                  const InstructionOptions& options,
                                                  const std::function<bool(int, int)>& progress) {
  std::vector<InstructionRate> rates;
  std::vector<Task> tasks = list_tasks(isas, options, rates);
  const OperandPool operands(std::ranges::max(options.threads));
  const int all = static_cast<int>(tasks.size()) * options.repeats;
  int done = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (Task& task : tasks) {
      if (progress && !progress(done++, all)) return {};
      const ProbeLoop& loop = *task.loop;
      const Sample sample = sample_rate(task.threads, options.sample_seconds, [&](int thread, int64_t iterations) {
        loop.run(operands.of(thread, loop.element).args(iterations));
      });
      loop_rate(rates[task.rate], loop.kind).tops.push_back(1e-12 * loop.ops * sample.units_per_second);
      task.clocks.push_back(sample.clock_ghz);
    }
  }
  for (const Task& task : tasks) loop_rate(rates[task.rate], task.loop->kind).clock_ghz = median_of(task.clocks);
  return rates;
}

std::string_view name(ProbeElement element) {
  constexpr std::string_view kNames[] = {"s8", "bf16", "f16", "f32"};
  return kNames[static_cast<size_t>(element)];
}

}  // namespace octalane
