#include "checkpoint/hf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/pre_tokenizers.h"
#include "files/mapped_file.h"
#include "files/quote.h"

namespace octalane {
namespace {

constexpr int64_t kMostTokens = 1 << 24;
enum Kind : int32_t {
  kNormal = 1,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5
};  // as tokenizer.ggml.token_type has it

struct Tokens {
  int64_t limit = kMostTokens;  ///< of ids: the rows of the embedding, where they are known
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;

  Status place(std::string_view text, std::optional<int64_t> id, int32_t kind, const std::string& path) {
    if (!id || *id < 0 || *id >= limit) {
      return fail("{}: token {}: wanted an id below {}", path, quote(text), limit);
    }
    const auto at = static_cast<size_t>(*id);
    if (at >= texts.size()) {
      texts.resize(at + 1);
      kinds.resize(at + 1, kUnused);
    }
    if (kinds[at] != kUnused && texts[at] != text) {
      return fail("{}: id {}: wanted one token, got {} and {}", path, *id, quote(texts[at]), quote(text));
    }
    texts[at] = text;
    kinds[at] = kind;
    return {};
  }

  int32_t find(std::string_view text) const {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (kinds[i] != kUnused && texts[i] == text) return static_cast<int32_t>(i);
    }
    return -1;
  }
};

Expected<Tokens> read_tokens(const Json& tokenizer, const Json& model, int64_t vocabulary, const std::string& path) {
  Tokens tokens;
  if (vocabulary > 0) tokens.limit = std::min(vocabulary, kMostTokens);
  const Json* texts = member(model, "vocab");
  if (texts == nullptr || !texts->is_object()) return fail("{}: model.vocab: wanted an object of ids", path);
  for (const auto& [text, id] : texts->items()) {
    if (const Status done = tokens.place(text, integer_of(&id), kNormal, path); !done) return fail_with(done);
  }
  if (const Json* added = member(tokenizer, "added_tokens"); added != nullptr && added->is_array()) {
    for (const Json& token : *added) {
      const auto text = text_of(member(token, "content"));
      if (!text) return fail("{}: added_tokens: wanted tokens with a content", path);
      const int32_t kind = boolean_of(member(token, "special")).value_or(false) ? kControl : kUserDefined;
      const Status done = tokens.place(*text, integer_of(member(token, "id")), kind, path);
      if (!done) return fail_with(done);
    }
  }
  if (vocabulary > static_cast<int64_t>(tokens.texts.size()) && vocabulary < kMostTokens) {
    tokens.texts.resize(static_cast<size_t>(vocabulary));
    tokens.kinds.resize(static_cast<size_t>(vocabulary), kUnused);
  }
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.kinds[i] == kUnused) tokens.texts[i] = fmt::format("[PAD{}]", i);
  }
  return tokens;
}

/// "left right" or ["left", "right"] -> "left right"
Expected<std::vector<std::string>> read_merges(const Json& model, const std::string& path) {
  const Json* merges = member(model, "merges");
  if (merges == nullptr || !merges->is_array()) return fail("{}: model.merges: wanted an array", path);
  std::vector<std::string> out;
  out.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (const auto line = text_of(&merge)) {
      out.emplace_back(*line);
      continue;
    }
    const auto left = merge.is_array() && merge.size() == 2 ? text_of(&merge[0]) : std::nullopt;
    const auto right = left ? text_of(&merge[1]) : std::nullopt;
    if (!right) return fail("{}: model.merges: element {}: wanted two pieces", path, out.size());
    out.push_back(fmt::format("{} {}", *left, *right));
  }
  return out;
}

/// "bos_token": "<s>", or an object with its content.
std::optional<std::string_view> special_text(const Json& config, std::string_view key) {
  const Json* value = member(config, key);
  if (value != nullptr && value->is_object()) value = member(*value, "content");
  return text_of(value);
}

/// True when the post-processor puts this token first.
bool begins_with(const Json& tokenizer, std::string_view token) {
  const Json* processor = member(tokenizer, "post_processor");
  if (processor == nullptr) return false;
  Json steps = Json::array({*processor});
  if (const Json* inner = member(*processor, "processors"); inner != nullptr && inner->is_array()) steps = *inner;
  for (const Json& step : steps) {
    const Json* single = member(step, "single");
    if (single == nullptr || !single->is_array() || single->empty()) continue;
    const Json* special = member((*single)[0], "SpecialToken");
    if (special != nullptr && text_of(member(*special, "id")) == token) return true;
  }
  return false;
}

void set_id(GgufWriter& out, std::string_view key, int64_t id) {
  if (id >= 0) out.set(key, GgufType::u32, id);
}

/// Ids of "eos_token_id": one or several.
std::vector<int64_t> end_ids(const Json& config) {
  const Json* value = member(config, "eos_token_id");
  std::vector<int64_t> ids;
  if (value == nullptr) return ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (const auto whole = integer_of(&id)) ids.push_back(*whole);
  }
  return ids;
}

Status set_special_keys(const std::string& folder, const Json& config, const Json& tokenizer, const Tokens& tokens,
                        GgufWriter& out) {
  Json extra = Json::object();
  const std::string path = folder + "/tokenizer_config.json";
  if (std::filesystem::exists(path)) {
    Expected<Json> read = read_json(path);
    if (!read) return fail_with(read);
    extra = std::move(*read);
  }
  const auto named = [&](std::string_view text_key, std::string_view id_key) -> int64_t {
    if (const auto text = special_text(extra, text_key)) return tokens.find(*text);
    return integer_of(member(config, id_key)).value_or(-1);
  };
  const int64_t bos = named("bos_token", "bos_token_id");
  set_id(out, "tokenizer.ggml.bos_token_id", bos);

  std::vector<int64_t> ends = end_ids(config);
  if (const std::string generation = folder + "/generation_config.json"; std::filesystem::exists(generation)) {
    if (const Expected<Json> read = read_json(generation)) {
      for (const int64_t id : end_ids(*read)) ends.push_back(id);
    }
  }
  int64_t eos = named("eos_token", "");
  if (eos < 0 && !ends.empty()) eos = ends.front();
  std::erase(ends, eos);
  set_id(out, "tokenizer.ggml.eos_token_id", eos);
  if (!ends.empty()) set_id(out, "tokenizer.ggml.eot_token_id", ends.front());
  if (ends.size() > 1) set_id(out, "tokenizer.ggml.eom_token_id", ends[1]);
  set_id(out, "tokenizer.ggml.padding_token_id", named("pad_token", "pad_token_id"));

  const bool first = bos >= 0 && begins_with(tokenizer, tokens.texts[static_cast<size_t>(bos)]);
  out.set("tokenizer.ggml.add_bos_token", GgufType::boolean,
          first || boolean_of(member(extra, "add_bos_token")).value_or(false));

  const Json* chat = member(extra, "chat_template");
  if (chat != nullptr && chat->is_array()) {
    for (const Json& each : *chat) {
      if (text_of(member(each, "name")) == "default") chat = member(each, "template");
    }
  }
  if (const auto text = text_of(chat)) out.set("tokenizer.chat_template", GgufType::string, *text);
  if (const std::string file = folder + "/chat_template.jinja"; std::filesystem::exists(file)) {
    const Expected<MappedFile> mapped = MappedFile::open(file);
    if (!mapped) return fail_with(mapped);
    const auto bytes = mapped->bytes();
    out.set("tokenizer.chat_template", GgufType::string,
            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return {};
}

}  // namespace

Status set_tokenizer_keys(const std::string& folder, const Json& config, int64_t vocabulary, GgufWriter& out) {
  const std::string path = folder + "/tokenizer.json";
  if (!std::filesystem::exists(path)) return {};
  const Expected<Json> tokenizer = read_json(path);
  if (!tokenizer) return fail_with(tokenizer);
  const Json* model = member(*tokenizer, "model");
  if (model == nullptr || text_of(member(*model, "type")).value_or("BPE") != "BPE" ||
      boolean_of(member(*model, "byte_fallback")).value_or(false)) {
    return fail("{}: model: wanted byte-level BPE, got another kind", path);
  }
  const Json* steps = member(*tokenizer, "pre_tokenizer");
  const std::string_view name = steps == nullptr ? std::string_view() : name_of_pre_tokenizer(*steps);
  if (name.empty()) {
    return fail("{}: pre_tokenizer: wanted the steps of smollm, llama-bpe, qwen2 or gpt-2, got others", path);
  }
  const Expected<Tokens> tokens = read_tokens(*tokenizer, *model, vocabulary, path);
  if (!tokens) return fail_with(tokens);
  const Expected<std::vector<std::string>> merges = read_merges(*model, path);
  if (!merges) return fail_with(merges);
  out.set("tokenizer.ggml.model", GgufType::string, std::string_view("gpt2"));
  out.set("tokenizer.ggml.pre", GgufType::string, name);
  out.set_array("tokenizer.ggml.tokens", tokens->texts);
  out.set_array("tokenizer.ggml.token_type", tokens->kinds);
  out.set_array("tokenizer.ggml.merges", *merges);
  return set_special_keys(folder, config, *tokenizer, *tokens, out);
}

}  // namespace octalane
