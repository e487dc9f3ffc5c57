#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/restage.h"
#include "kernels/registry.h"

namespace octalane {
namespace {

/// Why the kernel may not run this problem at all; empty = it may.
std::string obstacle(const Kernel& kernel, Problem problem, const PlanInputs& inputs) {
  if (inputs.lane && kernel.staged != *inputs.lane) return fmt::format("lane {} was asked for", name(*inputs.lane));
  if (!inputs.lane && !info(kernel.staged).stock) {
    return fmt::format("lossy: int8 or fp8 activations run only when asked for (--lane {})", name(kernel.staged));
  }
  if (inputs.order && kernel.order != *inputs.order) {
    return fmt::format("weights are packed in tiles of {} rows, wanted {}", inputs.order->rows, kernel.order.rows);
  }
  if (inputs.order && restaged(kernel.staged) && inputs.restaged != kernel.staged) {
    return fmt::format("weights were bound without re-encoding for {}", name(kernel.staged));
  }
  if (problem.tokens > kernel.max_tokens) {
    return fmt::format("serves at most {} tokens, got {}", kernel.max_tokens, problem.tokens);
  }
  problem.staged = kernel.staged;
  return kernel.supports(problem);
}

/// Estimated work over speed: tokens are rounded up to the kernel's tile, for it computes whole tiles. Seconds with
/// measured rates, clocks with nominal ones: one source serves all kernels, so either way the numbers compare.
double estimate(const Kernel& kernel, const Problem& problem, std::span<const Rate> rates) {
  const int64_t tile = kernel.tile.m;
  const int64_t tokens = std::max<int64_t>(1, (problem.tokens + tile - 1) / tile) * tile;
  const double ops = 2.0 * static_cast<double>(tokens) * static_cast<double>(problem.rows * problem.cols);
  if (rates.empty()) return ops / kernel.nominal_ops_per_clock;
  const std::string kernel_name = name(kernel);
  const auto rate = std::ranges::find(rates, kernel_name, &Rate::kernel);
  return ops / (rate != rates.end() ? rate->ops_per_second : 1.0);  // never probed: last
}

template <class Visit>
void for_each_kernel(const PlanInputs& inputs, Visit visit) {
  for (const IsaTable* isa : inputs.isas) {
    for (const Kernel& kernel : isa->kernels) visit(*isa, kernel);
  }
}

}  // namespace

Choice choose_kernel(const Problem& problem, const PlanInputs& inputs) {
  Choice best;
  double best_estimate = 0;
  for_each_kernel(inputs, [&](const IsaTable& isa, const Kernel& kernel) {
    if (!obstacle(kernel, problem, inputs).empty()) return;
    const double candidate = estimate(kernel, problem, inputs.rates);
    if (best.kernel != nullptr && candidate > best_estimate) return;
    best = {&kernel, &isa};
    best_estimate = candidate;
  });
  return best;
}

Expected<Plan> make_plan(const Problem& problem, const PlanInputs& inputs) {
  Plan plan;
  plan.choice = choose_kernel(problem, inputs);
  const Kernel* winner = plan.choice.kernel;
  const double least = winner != nullptr ? estimate(*winner, problem, inputs.rates) : 0;
  for_each_kernel(inputs, [&](const IsaTable&, const Kernel& kernel) {
    if (&kernel == winner) return;
    std::string why = obstacle(kernel, problem, inputs);
    if (why.empty()) {
      why = fmt::format("estimated {:.2f}x the time of the winner", estimate(kernel, problem, inputs.rates) / least);
    }
    plan.refused.push_back({name(kernel), std::move(why)});
  });
  if (winner == nullptr) {
    std::string all;
    for (const Refusal& refusal : plan.refused) {
      all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", refusal.kernel, refusal.why);
    }
    return fail("no kernel serves {} rows x {} columns: {}", problem.rows, problem.cols, all);
  }
  plan.reason = fmt::format("least estimated time for {} tokens, from {} rates ({})", problem.tokens,
                            inputs.rates.empty() ? "nominal" : "measured", winner->instruction);
  return plan;
}

}  // namespace octalane
