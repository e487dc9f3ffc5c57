#include "linear/binding.h"

#include "core/restage.h"
#include "linear/linear.h"

namespace octalane {
namespace {

PlanInputs inputs_for(const Context& context, const LaneSelection& lanes) {
  PlanInputs inputs = context.plan_inputs();
  inputs.lane = lanes.forced;
  inputs.allowed = lanes.lossy;
  return inputs;
}

}  // namespace

PlanInputs Binding::inputs(const Context& context) const {
  PlanInputs inputs = inputs_for(context, lanes);
  inputs.order = order;
  if (restaged) inputs.restaged.insert(*restaged);
  return inputs;
}

Expected<Binding> plan_binding(const Context& context, const std::string& name, const WeightSpec& weights, int64_t rows,
                               int64_t cols, const LaneSelection& lanes) {
  PlanInputs inputs = inputs_for(context, lanes);
  Problem problem{1, rows, cols, weights, {}};
  const Choice few = choose_kernel(problem, inputs);
  if (few.kernel == nullptr) {
    const Expected<Plan> why = make_plan(problem, inputs);
    return fail("{}: {}", name, why.error().message);
  }
  Binding binding{lanes, few.kernel->order, {}};
  for (const StagedTypeInfo& row : kStagedTypes) {
    if (restaged(row.type)) inputs.restaged.insert(row.type);
  }
  inputs.order = binding.order;
  problem.tokens = kBindingTokens;
  const Choice many = choose_kernel(problem, inputs);
  for (const Choice& choice : {few, many}) {
    if (choice.kernel != nullptr && restaged(choice.kernel->staged)) binding.restaged = choice.kernel->staged;
  }
  return binding;
}

}  // namespace octalane
