// The ways of cutting a text before byte-pair merges: what tokenizer.json says, and the name that GGUF gives it.
#pragma once

#include <string_view>

#include "checkpoint/json.h"

namespace octalane {

/// "smollm", "llama-bpe", "qwen2" or "gpt-2"; "" when it is none of them.
std::string_view name_of_pre_tokenizer(const Json& pre_tokenizer);

/// The inverse; null for a name that is not one of the four.
Json pre_tokenizer_of(std::string_view name);

}  // namespace octalane
