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

/// The prompt for these messages, ending where the assistant's answer begins. Includes the family's default system
/// message where its template adds one. Fails, naming the template's first words, for an unknown template.
Expected<std::string> format_chat(const GgufFile& file, std::span<const ChatMessage> messages);

}  // namespace octalane
