// Which kernel multiplies. A pure function of the problem, the machine's instruction sets, their rates and the lanes
// allowed: it needs no hardware and is tested without any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "kernels/kernel.h"

namespace octalane {

/// A kernel's measured speed, drain included, in operations per second.
struct Rate {
  std::string kernel;
  double ops_per_second = 0;
};

struct PlanInputs {
  /// The instruction sets that may be used, slowest first.
  std::span<const IsaTable* const> isas;
  /// Empty until the machine has been probed: the nominal rates of the kernel table decide then.
  std::span<const Rate> rates;
  /// A lane forced by name. Without it only the stock lane is allowed: every other one is lossy.
  std::optional<StagedType> lane;
  /// The tile order that the weights already have; empty before they are packed.
  std::optional<TileOrder> order;
  /// Packed weights serve the lanes that re-encode (core/restage.h) only with the scales of that re-encoding.
  std::optional<StagedType> restaged;
};

/// A kernel and the instruction set it belongs to; kernel is null when nothing can serve the problem.
struct Choice {
  const Kernel* kernel = nullptr;
  const IsaTable* isa = nullptr;
};

/// The kernel with the least estimated time among those that can serve the problem. `problem.staged` is ignored: the
/// lane is part of what is decided.
Choice choose_kernel(const Problem& problem, const PlanInputs& inputs);

struct Refusal {
  std::string kernel;
  std::string why;
};

struct Plan {
  Choice choice;
  std::string reason;
  std::vector<Refusal> refused;
};

/// choose_kernel with its reasons: why the winner won, and why each other kernel of the allowed instruction sets lost.
/// Fails only when no kernel can serve the problem, and then says what each one lacked.
Expected<Plan> make_plan(const Problem& problem, const PlanInputs& inputs);

}  // namespace octalane
