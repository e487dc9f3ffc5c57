#include "cli/tensor_plan.h"

#include "files/quote.h"

namespace octalane::cli {

Expected<Plan> plan_tensor(const Context& context, const Checkpoint& file, const CheckpointTensor& tensor,
                           int64_t tokens) {
  const Expected<const Format*> format = tensor_format(file, tensor);
  if (!format) return fail_with(format);
  const WeightSpec& spec = (*format)->spec;
  const std::string name(tensor.name);
  const Expected<Binding> binding =
      plan_binding(context, quote(name), spec, tensor.rows(), tensor.cols(), context.lanes_of(name));
  if (!binding) return fail_with(binding);
  Expected<Plan> plan = make_plan({tokens, tensor.rows(), tensor.cols(), spec, {}}, binding->inputs(context));
  if (!plan) return fail("{}: {}", quote(tensor.name), plan.error().message);
  return plan;
}

bool is_matrix(const CheckpointTensor& tensor) {
  return tensor.shape.size() >= 2 && tensor.cols() > 0 && tensor.rows() > 0;
}

}  // namespace octalane::cli
