// Plans for the tensors of a file, from its header alone.
#pragma once

#include "cli/command.h"

namespace octalane::cli {

/// The plan for `tokens` activations times this tensor, as it would be after binding: the weights are packed in the
/// tile order of the plan for one token. Fails when no allowed kernel can serve it, or the type is not supported.
Expected<Plan> plan_tensor(const Context& context, const Checkpoint& file, const CheckpointTensor& tensor,
                           int64_t tokens);

/// True for tensors that are multiplied with: at least two dimensions, none of them zero.
bool is_matrix(const CheckpointTensor& tensor);

}  // namespace octalane::cli
