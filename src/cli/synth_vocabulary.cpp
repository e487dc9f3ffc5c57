#include "cli/synth_vocabulary.h"

#include <fmt/format.h>

namespace octalane::cli {
namespace {

enum TokenType : int32_t { normal = 1, control = 3, unused = 5 };  // llama.cpp's llama_token_type

std::string utf8(unsigned code) {  // of a code point below U+0800
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// How byte-level vocabularies write bytes: printable Latin-1 characters as themselves, the others, in order, as the
/// code points from U+0100 (GPT-2's bytes_to_unicode).
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    tokens.push_back(utf8(printable ? byte : next++));
  }
  return tokens;
}

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

void set_byte_vocabulary(GgufWriter& writer, std::string_view pre_tokenizer, int64_t size) {
  std::vector<std::string> tokens = byte_tokens();
  std::vector<int32_t> types(tokens.size(), normal);
  const auto first_control = static_cast<uint64_t>(tokens.size());
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(text);
    types.push_back(control);
  }
  while (static_cast<int64_t>(tokens.size()) < size) {
    tokens.push_back(fmt::format("[unused{}]", tokens.size()));
    types.push_back(unused);
  }
  writer.set("tokenizer.ggml.model", GgufType::string, std::string_view("gpt2"));
  writer.set("tokenizer.ggml.pre", GgufType::string, pre_tokenizer);
  writer.set_array("tokenizer.ggml.tokens", tokens);
  writer.set_array("tokenizer.ggml.token_type", types);
  writer.set_array("tokenizer.ggml.merges", std::span<const std::string>());
  writer.set("tokenizer.ggml.bos_token_id", GgufType::u32, first_control);
  writer.set("tokenizer.ggml.eos_token_id", GgufType::u32, first_control + 2);
  writer.set("tokenizer.ggml.add_bos_token", GgufType::boolean, false);
  writer.set("tokenizer.chat_template", GgufType::string, kChatTemplate);
}

}  // namespace octalane::cli
