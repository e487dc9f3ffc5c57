// From the tokenizer keys of GGUF to the files that the transformers library reads.
#include <array>

#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/pre_tokenizers.h"
#include "files/quote.h"

namespace octalane {
namespace {

enum Kind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

struct Source {
  std::vector<std::string_view> tokens, merges;
  std::vector<int32_t> kinds;
  std::string_view pre;
};

Expected<Source> read_source(const GgufFile& metadata) {
  const auto model = metadata.get<std::string_view>("tokenizer.ggml.model");
  if (!model) return fail_with(model);
  if (*model != "gpt2") {
    return fail("tokenizer.ggml.model: wanted byte-level BPE (gpt2), which a folder can hold, got {}", quote(*model));
  }
  auto pre = metadata.get_or<std::string_view>("tokenizer.ggml.pre", "");
  auto tokens = metadata.get_array<std::string_view>("tokenizer.ggml.tokens");
  auto merges = metadata.get_array<std::string_view>("tokenizer.ggml.merges");
  auto kinds = metadata.get_array<int32_t>("tokenizer.ggml.token_type");
  if (!pre) return fail_with(pre);
  if (!tokens) return fail_with(tokens);
  if (!merges) return fail_with(merges);
  if (!kinds) kinds = std::vector<int32_t>(tokens->size(), kNormal);
  if (kinds->size() != tokens->size()) {
    return fail("tokenizer.ggml.token_type: wanted {} types, got {}", tokens->size(), kinds->size());
  }
  return Source{std::move(*tokens), std::move(*merges), std::move(*kinds), *pre};
}

Json added_token(size_t id, std::string_view text, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
}

/// Puts the begin token before every text.
Json begin_template(std::string_view bos, int64_t id) {
  const Json first{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({first, sequence("A", 0)})},
          {"pair", Json::array({first, sequence("A", 0), first, sequence("B", 1)})},
          {"special_tokens",
           {{std::string(bos), {{"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({bos})}}}}}};
}

}  // namespace

Expected<TokenizerFiles> tokenizer_files(const GgufFile& metadata) {
  const Expected<Source> source = read_source(metadata);
  if (!source) return fail_with(source);
  Json steps = pre_tokenizer_of(source->pre);
  if (steps.is_null()) {
    return fail("tokenizer.ggml.pre: wanted smollm, llama-bpe, qwen2 or gpt-2, which a folder can hold, got {}",
                quote(source->pre));
  }
  Json vocabulary = Json::object(), added = Json::array(), merges = Json::array();
  for (size_t i = 0; i < source->tokens.size(); ++i) {
    const int32_t kind = source->kinds[i];
    if (kind == kUnused) continue;
    vocabulary[std::string(source->tokens[i])] = i;
    if (kind != kNormal) added.push_back(added_token(i, source->tokens[i], kind != kUserDefined));
  }
  for (const std::string_view merge : source->merges) merges.push_back(merge);

  TokenizerFiles files;
  files.config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto special = [&](const char* key, const char* name) -> std::optional<int64_t> {
    const auto id = metadata.get<int64_t>(fmt::format("tokenizer.ggml.{}", key));
    if (!id || *id < 0 || *id >= static_cast<int64_t>(source->tokens.size())) return {};
    files.config[name] = source->tokens[static_cast<size_t>(*id)];
    return *id;
  };
  const auto bos = special("bos_token_id", "bos_token"), eos = special("eos_token_id", "eos_token");
  special("padding_token_id", "pad_token");
  if (bos) files.bos_token_id = *bos;
  if (eos) files.eos_token_id = *eos;
  const auto add_bos = metadata.get_or<bool>("tokenizer.ggml.add_bos_token", source->pre == "llama-bpe");
  if (const auto chat = metadata.get<std::string_view>("tokenizer.chat_template")) {
    files.config["chat_template"] = *chat;
  }
  files.tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(steps)},
      {"post_processor",
       bos && add_bos.value_or(false) ? begin_template(source->tokens[static_cast<size_t>(*bos)], *bos) : byte_level()},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", source->pre == "llama-bpe"},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}}};
  return files;
}

}  // namespace octalane
