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
  if (!inputs.lane && !info(kernel.staged).stock && !inputs.allowed.contains(kernel.staged)) {
    return fmt::format("lossy: no gate receipt allows it (--lane {} forces it)", name(kernel.staged));
  }
  if (inputs.kernel != nullptr && inputs.kernel != &kernel)
    return fmt::format("{} was asked for", name(*inputs.kernel));
  if (inputs.order && kernel.order != *inputs.order) {
    return fmt::format("weights are packed in tiles of {} rows, wanted {}", inputs.order->rows, kernel.order.rows);
  }
  if (inputs.order && restaged(kernel.staged) && !inputs.restaged.contains(kernel.staged)) {
    return fmt::format("weights were bound without re-encoding for {}", name(kernel.staged));
  }
  if (problem.tokens > kernel.max_tokens) {
    return fmt::format("serves at most {} tokens, got {}", kernel.max_tokens, problem.tokens);
  }
  problem.staged = kernel.staged;
  return kernel.supports(problem);
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Clocks by the nominal rate, for whole tiles of tokens.
double nominal_clocks(const Kernel& kernel, const Problem& problem) {
  const auto tokens = static_cast<double>(round_up(std::max<int64_t>(1, problem.tokens), kernel.tile.m));
  return 2 * tokens * static_cast<double>(problem.rows * problem.cols) / kernel.nominal_ops_per_clock;
}

template <class Visit>
void for_each_kernel(const PlanInputs& inputs, Visit visit) {
  for (const IsaTable* isa : inputs.isas) {
    for (const Kernel& kernel : isa->kernels) visit(*isa, kernel);
  }
}

/// The kernels that may run a problem, and what each would cost: seconds when all of them have been measured with these
/// weights, else clocks, so that the numbers compare.
struct Candidates {
  std::vector<Choice> choices;
  bool measured = false;

  Candidates(const Problem& problem, const PlanInputs& inputs) : problem_(problem), rates_(inputs.rates) {
    for_each_kernel(inputs, [&](const IsaTable& isa, const Kernel& kernel) {
      if (obstacle(kernel, problem, inputs).empty()) choices.push_back({&kernel, &isa});
    });
    measured = rates_ != nullptr && std::ranges::all_of(choices, [&](const Choice& choice) {
                 return rates_->find(*choice.kernel, problem.weights) != nullptr;
               });
  }

  double estimate(const Kernel& kernel) const {
    if (!measured) return nominal_clocks(kernel, problem_);
    const double each =
        seconds_per_weight(*rates_->find(kernel, problem_.weights), std::max<int64_t>(1, problem_.tokens));
    return each * static_cast<double>(problem_.rows * problem_.cols);
  }

  Choice best() const {
    Choice best;
    double least = 0;
    for (const Choice& choice : choices) {
      const double candidate = estimate(*choice.kernel);
      if (best.kernel != nullptr && candidate > least) continue;
      best = choice;
      least = candidate;
    }
    return best;
  }

 private:
  const Problem& problem_;
  const Rates* rates_;
};

}  // namespace

void Rates::set(KernelRate rate) {
  const auto place = std::ranges::lower_bound(rates_, rate.kernel, std::less<>(), &KernelRate::kernel);
  const auto same = std::ranges::find_if(place, rates_.end(), [&](const KernelRate& other) {
    return other.kernel == rate.kernel && other.weights == rate.weights;
  });
  if (same != rates_.end()) {
    *same = std::move(rate);
  } else {
    rates_.insert(place, std::move(rate));
  }
}

const KernelRate* Rates::find(const Kernel& kernel, const WeightSpec& weights) const {
  const auto first = std::ranges::lower_bound(rates_, &kernel, std::less<>(), &KernelRate::kernel);
  for (auto rate = first; rate != rates_.end() && rate->kernel == &kernel; ++rate) {
    if (rate->weights == weights) return &*rate;
  }
  return nullptr;
}

double seconds_per_weight(const KernelRate& rate, int64_t tokens) {
  const int64_t whole_tiles = round_up(tokens, rate.kernel->tile.m);
  const auto next = std::ranges::lower_bound(rate.points, tokens, std::less<>(), &RatePoint::tokens);
  if (next == rate.points.end()) {
    const RatePoint& last = rate.points.back();
    return last.seconds_per_weight * static_cast<double>(whole_tiles) / static_cast<double>(last.tokens);
  }
  if (next == rate.points.begin()) return next->seconds_per_weight;
  const RatePoint &before = *std::prev(next), &after = *next;
  const auto at = static_cast<double>(std::min(whole_tiles, after.tokens) - before.tokens);
  const double share = at / static_cast<double>(after.tokens - before.tokens);
  return before.seconds_per_weight + share * (after.seconds_per_weight - before.seconds_per_weight);
}

Choice choose_kernel(const Problem& problem, const PlanInputs& inputs) { return Candidates(problem, inputs).best(); }

Expected<Plan> make_plan(const Problem& problem, const PlanInputs& inputs) {
  const Candidates candidates(problem, inputs);
  Plan plan;
  plan.choice = candidates.best();
  const Kernel* winner = plan.choice.kernel;
  const double least = winner != nullptr ? candidates.estimate(*winner) : 0;
  for_each_kernel(inputs, [&](const IsaTable&, const Kernel& kernel) {
    if (&kernel == winner) return;
    std::string why = obstacle(kernel, problem, inputs);
    if (why.empty()) why = fmt::format("estimated {:.2f}x the time of the winner", candidates.estimate(kernel) / least);
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
                            candidates.measured ? "measured" : "nominal", winner->instruction);
  if (candidates.measured) plan.seconds = least;
  return plan;
}

}  // namespace octalane
