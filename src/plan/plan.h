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

/// Measured speed of an instruction at its kernel's own mix, in operations per second.
struct Rate {
  std::string kernel;
  double ops_per_second = 0;
};

struct PlanInputs {
  /// The instruction sets that may be used, slowest first.
  std::span<const IsaTable* const> isas;
  /// Empty until the machine has been probed: nominal rates of the kernel table decide then.
  std::span<const Rate> rates;
  /// A lane forced by name. Without it only the stock lane is allowed: every other one is lossy.
  std::optional<StagedType> lane;
};

struct Refusal {
  std::string kernel;
  std::string why;
};

struct Plan {
  const Kernel* kernel = nullptr;
  const IsaTable* isa = nullptr;
  std::string reason;
  std::vector<Refusal> refused;
};

/// `problem.staged` is ignored: the lane is what is being decided. Fails only when no kernel can serve the problem, and
/// then says what each one lacked.
Expected<Plan> make_plan(const Problem& problem, const PlanInputs& inputs);

}  // namespace octalane
