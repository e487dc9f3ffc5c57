// Names of weights: the module paths of model folders, as the transformers library has them, and what GGUF calls them.
#pragma once

#include <string>
#include <string_view>

namespace octalane {

/// "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"; "" for a name that has no part in a decoder of the
/// llama, qwen2 and qwen3 families.
std::string role_of_path(std::string_view path);

/// The inverse; "" when there is none.
std::string path_of_role(std::string_view role);

}  // namespace octalane
