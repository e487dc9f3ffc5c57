// What is decided when weights are bound, from their name and shape alone.
#pragma once

#include <string>

#include "linear/lane_rules.h"
#include "plan/plan.h"

namespace octalane {

class Context;

/// Tokens for which a re-encoding is chosen where several lanes may: weights hold the scales of one.
inline constexpr int64_t kBindingTokens = 512;

/// The lanes that weights may take, the tile order they are packed in, and the lane that they are encoded again for.
struct Binding {
  LaneSelection lanes;
  TileOrder order;
  std::optional<StagedType> restaged;

  /// What plans for the bound weights are made from.
  PlanInputs inputs(const Context& context) const;
};

/// The tile order is that of the plan for one token, the re-encoding what the plan for kBindingTokens would take. Fails
/// when no kernel of these lanes can serve the weights; the error names the tensor and what each kernel lacked.
Expected<Binding> plan_binding(const Context& context, const std::string& name, const WeightSpec& weights, int64_t rows,
                               int64_t cols, const LaneSelection& lanes);

}  // namespace octalane
