// Chat prompts of the families octalane runs, recognised from the template that a model file carries.
#pragma once

#include <span>
#include <string>

#include "core/status.h"
#include "files/gguf.h"

namespace octalane {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// The prompt for these messages, ending where the assistant's answer begins. Known are ChatML (SmolLM2, Qwen2,
/// Qwen2.5, Qwen3), Llama-2 and Llama-3 (3.0 to 3.3), with the default system message that the file's template adds;
/// thoughts
/// ("<think>") of earlier answers go where the template drops them. A file without a template is taken for ChatML or
/// Llama-3 when its vocabulary has the tokens of one. The begin token is left to the tokenizer: encode the prompt with
/// add_special and parse_special. Errors: an unknown template (by its first words), roles, no message to answer.
Expected<std::string> format_chat(const GgufFile& file, std::span<const ChatMessage> messages);

}  // namespace octalane
