#include "model/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "model/tokenizer.h"
#include "model/tokenizer_golden.h"
#include "model/vocabulary_file.h"

namespace octalane {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Messages = std::vector<ChatMessage>;

// What is characteristic of each published template, in other words; record_chat.py renders the real ones.
const std::map<std::string, std::string> kTemplates = {
    {"smollm2",
     "{% if no_system %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by "
     "Hugging Face<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>' }}"},
    {"qwen2", "{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}"},
    {"qwen2.5",
     "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- prompt }}{{- '<|im_end|>\\n' }}{%- else %}"
     "{{- '<|im_start|>system\\n' + given + '<|im_end|>\\n' }}{{- '<|im_start|>system\\nYou are Qwen, created by "
     "Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"},
    {"qwen3", "{{- '<|im_start|>system\\n' + given + '<|im_end|>\\n' }}{%- if '</think>' in content %}"},
    {"llama-2", "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + content + ' [/INST]' }}"},
    {"llama-3", "{{ '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + content | trim + '<|eot_id|>' }}"},
    {"llama-3.1",
     "{%- set date_string = \"26 Jul 2024\" %}{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"
     "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- \"Today Date: \" + date_string + \"\\n\\n\" }}"},
    {"llama-3.2",
     "{%- set date_string = now(\"%d %b %Y\") %}{%- set date_string = \"26 Jul 2024\" %}"
     "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" + \"Cutting Knowledge Date: December 2023\\n\" }}"},
};

Expected<GgufFile> file_with(const std::string& text, const std::vector<std::string>& tokens = {"<s>", "</s>"}) {
  return metadata_file([&](GgufWriter& writer) {
    if (!text.empty()) writer.set("tokenizer.chat_template", GgufType::string, std::string_view(text));
    writer.set_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
    writer.set("tokenizer.ggml.bos_token_id", GgufType::u32, uint64_t{0});
    writer.set("tokenizer.ggml.eos_token_id", GgufType::u32, uint64_t{1});
  });
}

std::string format(const std::string& text, const Messages& messages) {
  const auto prompt = format_chat(*file_with(text), messages);
  return prompt ? *prompt : "error: " + prompt.error().message;
}

/// Every conversation of the recording, as the published template renders it; the tokenizer puts the first begin token.
void expect_recorded(const GgufFile& file, const std::string& family) {
  const auto recording = golden::read_json(golden::kFolder + "chat.json");
  ASSERT_GE(recording["prompts"][family].size(), 10u);
  for (const auto& [title, wanted] : recording["prompts"][family].items()) {
    Messages messages;
    for (const auto& message : recording["conversations"][title]) messages.push_back({message[0], message[1]});
    const auto prompt = format_chat(file, messages);
    if (wanted.is_null()) {
      EXPECT_FALSE(prompt) << title;
      continue;
    }
    ASSERT_TRUE(prompt) << title << ": " << prompt.error().message;
    const std::string begin = family.substr(0, 5) == "llama" ? recording["begin"][family] : "";
    EXPECT_EQ(begin + *prompt, wanted) << title;
  }
}

class ChatFamily : public testing::TestWithParam<std::string> {};

TEST_P(ChatFamily, prompts_are_those_of_the_published_template) {
  const auto file = file_with(kTemplates.at(GetParam()));
  ASSERT_TRUE(file) << file.error().message;
  expect_recorded(*file, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Chat, ChatFamily,
                         testing::Values("smollm2", "qwen2", "qwen2.5", "qwen3", "llama-2", "llama-3", "llama-3.1",
                                         "llama-3.2"),
                         [](const auto& values) {
                           std::string name = values.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

TEST(Chat, the_real_model_renders_as_its_template) {
  if (!std::filesystem::exists(golden::smollm2_path())) GTEST_SKIP() << "the model file is absent";
  expect_recorded(*GgufFile::open(golden::smollm2_path()), "smollm2");
}

TEST(Chat, a_prompt_becomes_the_special_tokens_it_spells) {
  const auto file = GgufFile::open(golden::path_of("smollm"));
  const Tokenizer tokenizer = *Tokenizer::load(*file);
  const auto prompt = format_chat(*file, Messages{{"user", "Hi"}});
  ASSERT_TRUE(prompt) << prompt.error().message;
  const auto tokens = tokenizer.encode(*prompt, {.parse_special = true});
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 1), 2);  // <|im_start|>
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 2), 1);  // <|im_end|>
}

TEST(Chat, without_a_template_the_vocabulary_tells) {
  const Messages messages = {{"user", "Hi"}};
  EXPECT_EQ(*format_chat(*file_with("", {"a", "b", "<|im_start|>"}), messages),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      *format_chat(*file_with("", {"a", "b", "<|start_header_id|>"}), messages),
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_THAT(format("", messages),
              AllOf(HasSubstr("\"tokenizer.chat_template\" is missing"), HasSubstr("plain prompts")));
}

TEST(Chat, an_unknown_template_is_refused_by_its_first_words) {
  EXPECT_THAT(format("{{ '<start_of_turn>' + role }}", {{"user", "Hi"}}),
              AllOf(HasSubstr("\"tokenizer.chat_template\""), HasSubstr("ChatML, Llama-2 or Llama-3"),
                    HasSubstr("begins \"{{ '<start_of_turn>' + role }}\"")));
  // Mistral's: it has the brackets of Llama-2, not its system block.
  EXPECT_THAT(format("{{ '[INST] ' + content + ' [/INST]' }}", {{"user", "Hi"}}), HasSubstr("error: "));
}

TEST(Chat, default_system_messages_are_read_as_the_literals_they_are) {
  const auto opening = [](const std::string& text) { return format(text, {{"user", "Hi"}}); };
  const std::string question = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(opening("{{ \"<|im_start|>system\\nYou're kind.\\nVery.<|im_end|>\\n\" }}"),
            "<|im_start|>system\nYou're kind.\nVery.<|im_end|>\n" + question);
  EXPECT_EQ(opening("{{ '<|im_start|>system\\nYou\\'re kind.<|im_end|>\\n' }}"),
            "<|im_start|>system\nYou're kind.<|im_end|>\n" + question);
  EXPECT_EQ(opening("<|im_start|>system\n{{ system }}<|im_end|>\n"), question);
  EXPECT_EQ(opening("{{ '<|im_start|>system\\n"), question);
  EXPECT_EQ(opening("<|im_start|>system"), question);
  EXPECT_EQ(opening("<|im_start|>system\\"), question);
}

TEST(Chat, an_answer_opens_with_the_thoughts_that_the_template_begins) {
  // As QwQ and Qwen3-Thinking do; Qwen3 begins none, and writes empty ones only when told not to think.
  const auto prompt = [](const char* end) {
    return format("{{ '<|im_start|>' + role }}" + std::string(end), {{"user", "Hi"}});
  };
  const std::string question = "<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(prompt("{{- '<|im_start|>assistant\\n<think>\\n' }}"), question + "<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(prompt("{{- '<|im_start|>assistant\\n' }}{{- '<think>\\n\\n</think>' }}"),
            question + "<|im_start|>assistant\n");
  EXPECT_EQ(prompt("{{- '<|im_start|>assistant\\n<think>"), question + "<|im_start|>assistant\n");
}

TEST(Chat, roles_and_order_are_checked) {
  const std::string& chatml = kTemplates.at("qwen2");
  EXPECT_THAT(format(chatml, {}), HasSubstr("at least one message"));
  EXPECT_THAT(format(chatml, {{"user", "Hi"}, {"tool", "x"}}),
              AllOf(HasSubstr("message 1"), HasSubstr("got \"tool\"")));
  EXPECT_THAT(format(chatml, {{"user", "Hi"}, {"assistant", "Hello"}}), HasSubstr("assistant's own"));
  EXPECT_THAT(format(kTemplates.at("llama-2"), {{"system", "Be brief."}}), HasSubstr("only the system's"));
  EXPECT_THAT(format(kTemplates.at("llama-2"), {{"user", "a"}, {"user", "b"}}),
              HasSubstr("wanted assistant, got user"));
}

}  // namespace
}  // namespace octalane
