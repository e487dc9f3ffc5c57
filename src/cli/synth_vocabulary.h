#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/gguf.h"

namespace octalane::cli {

/// Sets the tokenizer keys of the smallest vocabulary that encodes any text: one token per byte, the control tokens of
/// ChatML, and unused tokens up to `size` (at least 259). No merges.
void set_byte_vocabulary(GgufWriter& writer, std::string_view pre_tokenizer, int64_t size);

}  // namespace octalane::cli
