#include "model/chat.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "files/quote.h"

namespace octalane {

namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr std::string_view kSystem = "system", kUser = "user", kAssistant = "assistant";

enum class Family { chatml, llama2, llama3 };

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhite) + 1 - first);
}

/// What stands between `before` and the next `after`.
std::optional<std::string_view> between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  const size_t end = text.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

bool has_token(const GgufFile& file, std::string_view text) {
  const auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
  return tokens && std::find(tokens->begin(), tokens->end(), text) != tokens->end();
}

/// The text of the token that `key` names.
std::string_view token_text(const GgufFile& file, std::string_view key, std::string_view fallback) {
  const auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
  const auto id = file.get<int64_t>(key);
  if (!tokens || !id || *id < 0 || static_cast<uint64_t>(*id) >= tokens->size()) return fallback;
  return (*tokens)[static_cast<size_t>(*id)];
}

/// By what the template writes around a message; without a template, by the tokens that the vocabulary has for it.
Expected<Family> recognise(const GgufFile& file, std::string_view text) {
  if (contains(text, "<|im_start|>")) return Family::chatml;
  if (contains(text, "<|start_header_id|>")) return Family::llama3;
  if (contains(text, "[INST]") && contains(text, "<<SYS>>")) return Family::llama2;
  if (!text.empty())
    return fail("{}: key {}: wanted a ChatML, Llama-2 or Llama-3 template, got one that begins {}", file.path(),
                quote(kTemplate), quote(text.substr(0, 60)));
  if (has_token(file, "<|im_start|>")) return Family::chatml;
  if (has_token(file, "<|start_header_id|>")) return Family::llama3;
  return fail("{}: key {} is missing, and the vocabulary has no chat tokens: this model takes plain prompts only",
              file.path(), quote(kTemplate));
}

Status check(std::span<const ChatMessage> messages) {
  if (messages.empty()) return fail("chat: wanted at least one message, got none");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != kSystem && role != kUser && role != kAssistant)
      return fail("chat: message {}: wanted the role system, user or assistant, got {}", i, quote(role));
  }
  if (messages.back().role == kAssistant) return fail("chat: wanted a last message to answer, got the assistant's own");
  return {};
}

/// The text of a string literal, or of a stretch of plain template, from its middle up to `end`; nothing when the
/// literal ends before that. `quote` opened the literal.
std::optional<std::string> literal_until(std::string_view rest, char quote, std::string_view end) {
  std::string text;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest.substr(i, end.size()) == end) return text;
    if (rest[i] == quote || rest.substr(i, 2) == "{{" || rest.substr(i, 2) == "{%") break;
    const bool escape = rest[i] == '\\' && i + 1 < rest.size();
    if (escape) ++i;
    text += escape && rest[i] == 'n' ? '\n' : rest[i];
  }
  return std::nullopt;
}

/// The system message that a ChatML template writes when the messages bring none: text between the marks of one
/// literal.
std::string default_system(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>system";
  for (size_t at = text.find(kBegin); at != std::string_view::npos; at = text.find(kBegin, at + 1)) {
    const char quote = at > 0 ? text[at - 1] : '\'';
    const auto message = literal_until(text.substr(at + kBegin.size()), quote, "<|im_end|>");
    if (message && message->size() > 1 && message->front() == '\n') return message->substr(1);
  }
  return {};
}

/// What a ChatML template opens the answer with: some begin the thoughts for the model.
std::string answer_opening(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>assistant";
  const size_t at = text.rfind(kBegin);
  if (at != std::string_view::npos && at > 0) {
    const std::string_view quote = text.substr(at - 1, 1);
    const auto opening = literal_until(text.substr(at + kBegin.size()), '\0', quote);
    if (opening && opening->substr(0, 8) == "\n<think>") return std::string(kBegin) + *opening;
  }
  return std::string(kBegin) + "\n";
}

/// Templates of thinking models drop the thoughts of earlier answers.
std::string_view without_thoughts(std::string_view answer) {
  constexpr std::string_view kEnd = "</think>";
  const size_t end = answer.rfind(kEnd);
  if (end == std::string_view::npos) return answer;
  answer.remove_prefix(end + kEnd.size());
  answer.remove_prefix(std::min(answer.find_first_not_of('\n'), answer.size()));
  return answer;
}

std::string format_chatml(std::string_view text, std::span<const ChatMessage> messages) {
  std::string prompt;
  const auto add = [&](std::string_view role, std::string_view content) {
    prompt += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  const std::string system = default_system(text);
  if (messages.front().role != kSystem && !system.empty()) add(kSystem, system);
  const bool thinks = contains(text, "</think>");
  for (const ChatMessage& message : messages) {
    const bool answer = message.role == kAssistant;
    add(message.role, thinks && answer ? without_thoughts(message.content) : std::string_view(message.content));
  }
  return prompt + answer_opening(text);
}

std::string format_llama3(std::string_view text, std::span<const ChatMessage> messages) {
  std::string prompt;
  const auto add = [&](std::string_view role, std::string_view before, std::string_view content) {
    prompt += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}{}<|eot_id|>", role, before, trim(content));
  };
  // Since 3.1 a system message opens every chat, with two dates. "Today" is the template's own fallback date.
  const auto knowledge = between(text, "Cutting Knowledge Date: ", "\\n");
  const auto today = between(text, "date_string = \"", "\"");
  if (knowledge && today) {
    const bool has_system = messages.front().role == kSystem;
    const std::string dates = fmt::format("Cutting Knowledge Date: {}\nToday Date: {}\n\n", *knowledge, *today);
    add(kSystem, dates, has_system ? std::string_view(messages.front().content) : std::string_view());
    if (has_system) messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) add(message.role, "", message.content);
  return prompt + "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

Expected<std::string> format_llama2(const GgufFile& file, std::span<const ChatMessage> messages) {
  const std::string_view begin = token_text(file, "tokenizer.ggml.bos_token_id", "<s>");
  const std::string_view end = token_text(file, "tokenizer.ggml.eos_token_id", "</s>");
  std::string system;
  if (messages.front().role == kSystem) {
    system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", messages.front().content);
    messages = messages.subspan(1);
  }
  if (messages.empty()) return fail("chat: wanted a user's message, got only the system's");
  std::string prompt;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view wanted = i % 2 == 0 ? kUser : kAssistant;
    if (messages[i].role != wanted)
      return fail("chat: Llama-2 wants user and assistant in turn: wanted {}, got {}", wanted, messages[i].role);
    if (i % 2 == 0) {
      // The tokenizer puts the first begin token.
      const std::string content = (i == 0 ? system : "") + messages[i].content;
      prompt += fmt::format("{}[INST] {} [/INST]", i == 0 ? "" : begin, trim(content));
    } else {
      prompt += fmt::format(" {} {}", trim(messages[i].content), end);
    }
  }
  return prompt;
}

}  // namespace

Expected<std::string> format_chat(const GgufFile& file, std::span<const ChatMessage> messages) {
  const auto text = file.get_or<std::string_view>(kTemplate, "");
  if (!text) return fail_with(text);
  const auto family = recognise(file, *text);
  if (!family) return fail_with(family);
  if (const Status good = check(messages); !good) return fail_with(good);
  if (*family == Family::llama2) return format_llama2(file, messages);
  return *family == Family::chatml ? format_chatml(*text, messages) : format_llama3(*text, messages);
}

}  // namespace octalane
