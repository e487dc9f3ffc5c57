#include "cli/tensor_plan.h"

#include "files/quote.h"

namespace octalane::cli {

Expected<Plan> plan_tensor(const Context& context, const Checkpoint& file, const CheckpointTensor& tensor,
                           int64_t tokens) {
  const Expected<const Format*> format = tensor_format(file, tensor);
  if (!format) return fail_with(format);
  Problem problem{1, tensor.rows(), tensor.cols(), (*format)->spec, {}};
  PlanInputs inputs = context.plan_inputs();
  const Choice at_binding = choose_kernel(problem, inputs);
  if (at_binding.kernel != nullptr) inputs.order = at_binding.kernel->order;
  problem.tokens = tokens;
  Expected<Plan> plan = make_plan(problem, inputs);
  if (!plan) return fail("{}: {}", quote(tensor.name), plan.error().message);
  return plan;
}

bool is_matrix(const CheckpointTensor& tensor) {
  return tensor.shape.size() >= 2 && tensor.cols() > 0 && tensor.rows() > 0;
}

}  // namespace octalane::cli
