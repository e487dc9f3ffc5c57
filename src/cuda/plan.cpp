#include "cuda/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/restage.h"

namespace octalane::cuda {
namespace {

// Guesses, until a device has been measured.
constexpr double kNominalFixedSeconds = 4e-6;
constexpr double kDrainInstructions = 3;  // of an output: to fp32, scale, bias
constexpr double kVectorLanes = 128;      // of a multiprocessor

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Multiply-adds of a multiprocessor and clock, as the vendor states them; of mma.sync on compute capability 9.0 the
/// share of wgmma's that an H200 reaches (642 of 905 TOP/s in bfloat16, 1256 of 1918 in int8, by its probe).
double multiplies_per_clock(const Candidate& candidate, const DeviceInfo& device) {
  const bool wide = info(candidate.staged).lane == Lane::bf16;
  if (candidate.by_mma && device.capability < 90) return (device.capability == 80 ? 1024 : 512) * (wide ? 1 : 2);
  const double stated = wide ? 2048 : 4096;
  if (!candidate.by_mma) return stated;
  return stated * (wide ? 642.0 / 905 : 1256.0 / 1918);
}

/// Columns from drain to drain; 0: none on the way.
int drained_columns(const Candidate& candidate) {
  switch (candidate.staged) {
    case StagedType::s8_group:
    case StagedType::f8_group: return candidate.group;
    case StagedType::s8_nested:
    case StagedType::s8_block:
    case StagedType::s8_xblock: return kRestageBlock;
    case StagedType::f8_row: return kPromotedCols;
    default: return 0;
  }
}

double nominal_memory(const DeviceInfo& device) {
  // Two transfers a clock.
  return std::max(1.0, 2e6 * device.memory_clock_mhz * device.memory_bus_bits / 8);
}

double nominal_panel_seconds(const Candidate& candidate, const DeviceInfo& device) {
  double clocks_of_output = kPanelCols / multiplies_per_clock(candidate, device);
  if (const int columns = drained_columns(candidate); columns > 0) {
    clocks_of_output += kPanelCols / static_cast<double>(columns) * kDrainInstructions / kVectorLanes;
  }
  return clocks_of_output * candidate.tile_rows * candidate.tile_tokens / (1e6 * std::max(1, device.clock_mhz));
}

/// Why a candidate may not run this problem; empty = it may.
std::string obstacle(const Candidate& candidate, const Problem& problem) {
  if (!candidate.refusal.empty()) return candidate.refusal;
  if (!problem.f32_output && !candidate.writes_bf16) return "writes fp32 only";
  return {};
}

/// What each candidate would cost, in numbers that compare.
class Estimates {
 public:
  Estimates(const Problem& problem, std::span<const Candidate> candidates, const DeviceInfo& device, const Rates* rates)
      : problem_(problem), candidates_(candidates), device_(device), rates_(rates) {}

  const KernelRate* rate(const Candidate& candidate) const {
    if (rates_ == nullptr) return nullptr;
    const auto found = rates_->kernels.find(candidate.kernel);
    return found == rates_->kernels.end() ? nullptr : &found->second;
  }

  double seconds(const Candidate& candidate) const {
    if (const KernelRate* measured = rate(candidate)) {
      return measured_seconds(candidate, problem_, device_, *rates_, *measured);
    }
    return nominal_seconds(candidate, problem_, device_) * slowdown(candidate);
  }

  /// Why a candidate is not considered; empty = it is.
  std::string why_not(const Candidate& candidate) const {
    if (std::string why = obstacle(candidate, problem_); !why.empty()) return why;
    if (!candidate.by_mma || rate(candidate) != nullptr) return {};
    const bool has_wgmma = std::ranges::any_of(candidates_, [&](const Candidate& other) {
      return other.staged == candidate.staged && other.tile_rows > 0 && !other.by_mma &&
             obstacle(other, problem_).empty();
    });
    return has_wgmma ? "on mma.sync, and not measured to be faster than wgmma" : "";
  }

  std::optional<size_t> best() const {
    std::optional<size_t> best;
    double least = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!why_not(candidates_[i]).empty()) continue;
      const double candidate = seconds(candidates_[i]);
      if (best && !(candidate < least)) continue;
      best = i, least = candidate;
    }
    return best;
  }

 private:
  /// How much longer than nominal a kernel without a rate is taken to be: as the worst measured one of its lane and
  /// sort (which may be one that cannot run here), else as the worst of all.
  double slowdown(const Candidate& candidate) const {
    double of_kin = 0, of_all = 0;
    for (const Candidate& other : candidates_) {
      const KernelRate* const measured = rate(other);
      if (measured == nullptr) continue;
      const double ratio =
          measured_seconds(other, problem_, device_, *rates_, *measured) / nominal_seconds(other, problem_, device_);
      const bool kin = other.staged == candidate.staged && (other.tile_rows == 0) == (candidate.tile_rows == 0);
      of_all = std::max(of_all, ratio);
      if (kin) of_kin = std::max(of_kin, ratio);
    }
    return of_kin > 0 ? of_kin : of_all > 0 ? of_all : 1;
  }

  const Problem& problem_;
  std::span<const Candidate> candidates_;
  const DeviceInfo& device_;
  const Rates* rates_;
};

}  // namespace

double nominal_seconds(const Candidate& candidate, const Problem& problem, const DeviceInfo& device) {
  const Rates rates{.memory_bytes_per_second = nominal_memory(device), .kernels = {}};
  return measured_seconds(candidate, problem, device, rates,
                          {.panel_seconds = nominal_panel_seconds(candidate, device),
                           .bytes_per_second = rates.memory_bytes_per_second,
                           .fixed_seconds = kNominalFixedSeconds});
}

double measured_seconds(const Candidate& candidate, const Problem& problem, const DeviceInfo& device,
                        const Rates& rates, const KernelRate& rate) {
  const auto bytes = static_cast<double>(candidate.weight_bytes);
  const auto steps = static_cast<double>(divide_up(problem.tokens, candidate.tile_tokens));
  if (candidate.tile_rows == 0) return steps * (rate.fixed_seconds + bytes / rate.bytes_per_second);
  const int64_t tiles = divide_up(problem.tokens, candidate.tile_tokens) * divide_up(problem.rows, candidate.tile_rows);
  const int places = std::max(1, device.multiprocessors);
  const auto waves = static_cast<double>(divide_up(tiles, places));
  const auto panels = static_cast<double>(divide_up(problem.cols, kPanelCols));
  const double memory = rates.memory_bytes_per_second > 0 ? rates.memory_bytes_per_second : nominal_memory(device);
  // Power is a matter of means: what a launch leaves idle at its ends counts too, so the fixed part does not come on
  // top.
  const double powered = static_cast<double>(tiles) / places * panels * rate.power_seconds;
  return std::max(rate.fixed_seconds + std::max(waves * panels * rate.panel_seconds, bytes / memory), powered);
}

std::optional<size_t> best(const Problem& problem, std::span<const Candidate> candidates, const DeviceInfo& device,
                           const Rates* rates) {
  return Estimates(problem, candidates, device, rates).best();
}

Expected<Plan> choose(const Problem& problem, std::span<const Candidate> candidates, const DeviceInfo& device,
                      const Rates* rates) {
  const Estimates estimates(problem, candidates, device, rates);
  const std::optional<size_t> winner = estimates.best();
  Plan plan;
  if (winner) {
    const bool measured = estimates.rate(candidates[*winner]) != nullptr;
    plan = {.choice = *winner,
            .kernel = candidates[*winner].kernel,
            .staged = candidates[*winner].staged,
            .seconds = estimates.seconds(candidates[*winner]),
            .measured = measured,
            .reason = fmt::format("least estimated time for {} tokens, from {} rates", problem.tokens,
                                  measured ? "measured" : "nominal"),
            .refused = {}};
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == winner) continue;
    std::string why = estimates.why_not(candidates[i]);
    if (why.empty()) {
      why = fmt::format("estimated {:.2f}x the time of the winner", estimates.seconds(candidates[i]) / plan.seconds);
    }
    plan.refused.push_back({candidates[i].kernel, std::move(why)});
  }
  if (winner) return plan;
  std::string all;
  for (const Refusal& refusal : plan.refused) {
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", refusal.kernel, refusal.why);
  }
  return fail("no kernel serves {} rows x {} columns: {}", problem.rows, problem.cols, all);
}

}  // namespace octalane::cuda
