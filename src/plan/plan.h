// Which kernel multiplies. A pure function of the problem, the machine's instruction sets, their rates and the lanes
// allowed: it needs no hardware and is tested without any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/staged_set.h"
#include "core/status.h"
#include "kernels/kernel.h"

namespace octalane {

/// What a kernel costs for a number of tokens: seconds on one thread per weight (N x K), weights read from memory, the
/// activations in its form already.
struct RatePoint {
  int64_t tokens = 0;
  double seconds_per_weight = 0;
};

/// One kernel's measured costs with weights of one spec, tokens ascending from 1. A list that ends early says that the
/// kernel costs in proportion to the tokens from there on.
struct KernelRate {
  const Kernel* kernel = nullptr;
  WeightSpec weights;
  std::vector<RatePoint> points;
};

/// Measured costs, at most one for each kernel and spec.
class Rates {
 public:
  /// Replaces what there was. Precondition: points as KernelRate says, at least one.
  void set(KernelRate rate);
  /// Null when it was not measured.
  const KernelRate* find(const Kernel& kernel, const WeightSpec& weights) const;
  std::span<const KernelRate> all() const { return rates_; }

 private:
  std::vector<KernelRate> rates_;  // by address of the kernel
};

/// Seconds per weight for any number of tokens >= 1. Between measured points the cost is interpolated, after rounding
/// the tokens up to the kernel's tile (it computes whole tiles), but not beyond the next point.
double seconds_per_weight(const KernelRate& rate, int64_t tokens);

struct PlanInputs {
  /// The instruction sets that may be used, slowest first.
  std::span<const IsaTable* const> isas;
  /// Decide when every kernel that could serve a problem has been measured with its weights; else, and when null, the
  /// nominal rates of the kernel table do.
  const Rates* rates = nullptr;
  /// A lane forced by name. Without it the stock lane is allowed, and of the others, which are lossy, those in
  /// `allowed`.
  std::optional<StagedType> lane;
  StagedSet allowed;
  /// The tile order that the weights already have; empty before they are packed.
  std::optional<TileOrder> order;
  /// Packed weights serve the lanes that re-encode (core/restage.h) only with the scales of that re-encoding: those
  /// that they have, or that they may still get.
  StagedSet restaged;
  /// A kernel forced; null = any.
  const Kernel* kernel = nullptr;
};

/// A kernel and the instruction set it belongs to; kernel is null when nothing can serve the problem.
struct Choice {
  const Kernel* kernel = nullptr;
  const IsaTable* isa = nullptr;
};

/// The kernel with the least estimated time among those that can serve the problem. `problem.staged` is ignored: the
/// lane is part of what is decided. Of equal estimates the last in table order wins.
Choice choose_kernel(const Problem& problem, const PlanInputs& inputs);

struct Refusal {
  std::string kernel;
  std::string why;
};

struct Plan {
  Choice choice;
  std::string reason;
  std::optional<double> seconds;  ///< estimated on one thread; none without measured rates
  std::vector<Refusal> refused;
};

/// choose_kernel with its reasons: why the winner won, and why each other kernel of the allowed instruction sets lost.
/// Fails only when no kernel can serve the problem, and then says what each one lacked.
Expected<Plan> make_plan(const Problem& problem, const PlanInputs& inputs);

}  // namespace octalane
