#include "cli/peaks.h"

#include <algorithm>
#include <cmath>

#include "cli/machine.h"
#include "probe/instructions.h"

namespace octalane::cli {
namespace {

constexpr double kInstructionSeconds = 0.002;
constexpr double kReadSeconds = 0.005;

}  // namespace

std::optional<double> sample_loaded_tops(const Choice& choice, int threads) {
  const std::vector<InstructionRate> rates =
      measure_instructions({&choice.isa, 1}, {.threads = {threads},
                                              .repeats = 1,
                                              .sample_seconds = kInstructionSeconds,
                                              .instruction = choice.kernel->instruction});
  return rates.empty() ? std::nullopt : std::optional(rates.front().loaded.median());
}

ReadRates::ReadRates(const Context& context) : threads_(context.threads()) {
  const std::span<const IsaTable* const> isas = context.plan_inputs().isas;
  isas_.assign(isas.begin(), isas.end());
}

std::optional<double> ReadRates::gbps(int64_t bytes) {
  if (!measured_) {
    rates_ = measure_memory(
        isas_,
        {.threads = {threads_}, .sample_seconds = kReadSeconds, .last_level_cache_bytes = last_level_cache_bytes()});
    measured_ = true;
  }
  if (rates_.empty()) return {};
  const double mine = static_cast<double>(bytes) / threads_;
  const auto above =
      std::ranges::find_if(rates_, [&](const MemoryRate& rate) { return static_cast<double>(rate.bytes) >= mine; });
  if (above == rates_.begin()) return above->median();
  if (above == rates_.end()) return rates_.back().median();
  const MemoryRate& below = *(above - 1);
  const double from = std::log2(static_cast<double>(below.bytes)), to = std::log2(static_cast<double>(above->bytes));
  return std::lerp(below.median(), above->median(), (std::log2(mine) - from) / (to - from));
}

Json ReadRates::memory_json(const std::vector<MemoryRate>& rates) {
  Json all = Json::array();
  for (const MemoryRate& rate : rates) {
    all.push_back({{"bytes_per_thread", rate.bytes}, {"threads", rate.threads}, {"gbps", spread_json(rate.gbps)}});
  }
  return all;
}

}  // namespace octalane::cli
