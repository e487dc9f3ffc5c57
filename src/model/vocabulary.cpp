#include "model/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "files/quote.h"

namespace octalane {

namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";

// Texts that end a generation in the families octalane runs and their relatives.
constexpr std::string_view kEndTexts[] = {
    "</s>",
    "<eos>",
    "<|end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

// Fill-in-the-middle markers. A file that names no token for a marker may still have one of these texts.
struct Marker {
  std::string_view key;
  std::vector<std::string_view> texts;
  bool ends_generation;
};
const std::vector<Marker>& markers() {
  static const std::vector<Marker> all = {
      {"tokenizer.ggml.fim_pre_token_id", {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>"}, false},
      {"tokenizer.ggml.fim_suf_token_id", {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>"}, false},
      {"tokenizer.ggml.fim_mid_token_id", {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>"}, false},
      {"tokenizer.ggml.fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}, true},
      {"tokenizer.ggml.fim_rep_token_id",
       {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
       true},
      {"tokenizer.ggml.fim_sep_token_id", {"<|file_sep|>"}, true},
  };
  return all;
}

Status read_texts(const GgufFile& file, Vocabulary& vocabulary) {
  const auto texts = file.get_array<std::string_view>(kTokens);
  if (!texts) return fail_with(texts);
  if (texts->empty() || texts->size() > std::numeric_limits<int32_t>::max() / 2)
    return fail("{}: key {}: wanted 1 to 2^30 tokens, got {}", file.path(), quote(kTokens), texts->size());
  vocabulary.ids.reserve(texts->size());
  for (size_t i = 0; i < texts->size(); ++i) {
    const std::string_view text = (*texts)[i];
    const std::string& kept =
        vocabulary.texts.emplace_back(text.empty() ? fmt::format("[EMPTY_{}]", i) : std::string(text));
    const auto [entry, is_new] = vocabulary.ids.emplace(kept, static_cast<int32_t>(i));
    if (!is_new)
      return fail("{}: key {}: wanted every token once, got {} as number {} and {}", file.path(), quote(kTokens),
                  quote(kept), entry->second, i);
    vocabulary.longest = std::max(vocabulary.longest, kept.size());
  }
  return {};
}

Status read_kinds(const GgufFile& file, Vocabulary& vocabulary) {
  const size_t tokens = vocabulary.texts.size();
  vocabulary.kinds.assign(tokens, TokenKind::normal);
  if (!file.find(kTypes)) return {};
  const auto types = file.get_array<int32_t>(kTypes);
  if (!types) return fail_with(types);
  if (types->size() < tokens)
    return fail("{}: key {}: wanted {} types, got {}", file.path(), quote(kTypes), tokens, types->size());
  for (size_t i = 0; i < tokens; ++i) {
    const int32_t type = (*types)[i];
    const bool known = 0 <= type && type <= static_cast<int32_t>(TokenKind::byte);
    vocabulary.kinds[i] = known ? static_cast<TokenKind>(type) : TokenKind::undefined;
  }
  return {};
}

Status read_scores(const GgufFile& file, Vocabulary& vocabulary) {
  if (!file.find(kScores)) return {};
  auto scores = file.get_array<float>(kScores);
  if (!scores) return fail_with(scores);
  if (scores->size() < vocabulary.texts.size())
    return fail("{}: key {}: wanted {} scores, got {}", file.path(), quote(kScores), vocabulary.texts.size(),
                scores->size());
  const auto nan = std::find_if(scores->begin(), scores->end(), [](float score) { return std::isnan(score); });
  if (nan != scores->end())
    return fail("{}: key {}: wanted numbers, got NaN at {}", file.path(), quote(kScores), nan - scores->begin());
  vocabulary.scores = std::move(*scores);
  return {};
}

/// The token that a key names, `fallback` when the file lacks the key.
Expected<int32_t> read_id(const GgufFile& file, std::string_view key, const Vocabulary& vocabulary, int32_t fallback) {
  if (!file.find(key)) return fallback < vocabulary.size() ? fallback : -1;
  const auto id = file.get<int64_t>(key);
  if (!id) return fail_with(id);
  if (*id < 0 || *id >= vocabulary.size())
    return fail("{}: key {}: wanted a token below {}, got {}", file.path(), quote(key), vocabulary.size(), *id);
  return static_cast<int32_t>(*id);
}

/// The texts of ends and markers are control tokens whatever the file says of them.
Status find_ends(const GgufFile& file, Vocabulary& vocabulary) {
  std::vector<int32_t>& ends = vocabulary.ends;
  for (const std::string_view text : kEndTexts) {
    const int32_t token = vocabulary.find(text);
    if (token < 0) continue;
    vocabulary.kinds[token] = TokenKind::control;
    ends.push_back(token);
  }
  for (const Marker& marker : markers()) {
    const auto named = read_id(file, marker.key, vocabulary, -1);
    if (!named) return fail_with(named);
    int32_t token = *named;
    if (token < 0) {  // of several, the first one
      for (const std::string_view text : marker.texts) {
        const int32_t found = vocabulary.find(text);
        if (found >= 0 && (token < 0 || found < token)) token = found;
      }
      if (token >= 0) vocabulary.kinds[token] = TokenKind::control;
    }
    if (token >= 0 && marker.ends_generation) ends.push_back(token);
  }
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto token = read_id(file, key, vocabulary, -1);
    if (!token) return fail_with(token);
    if (*token >= 0) ends.push_back(*token);
  }
  if (vocabulary.eos >= 0) ends.push_back(vocabulary.eos);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return {};
}

void order_partition(Vocabulary& vocabulary) {
  for (int32_t token = 0; token < vocabulary.size(); ++token)
    if (vocabulary.is_special(token) || vocabulary.kinds[token] == TokenKind::user_defined)
      vocabulary.partition.push_back(token);
  std::stable_sort(vocabulary.partition.begin(), vocabulary.partition.end(),
                   [&](int32_t a, int32_t b) { return vocabulary.texts[a].size() > vocabulary.texts[b].size(); });
}

}  // namespace

Expected<Vocabulary> load_vocabulary(const GgufFile& file, const DefaultIds& defaults) {
  Vocabulary vocabulary;
  for (const auto read : {read_texts, read_kinds, read_scores})
    if (const Status done = read(file, vocabulary); !done) return fail_with(done);

  const struct {
    std::string_view key;
    int32_t fallback;
    int32_t& id;
  } named[] = {{"tokenizer.ggml.bos_token_id", defaults.bos, vocabulary.bos},
               {"tokenizer.ggml.eos_token_id", defaults.eos, vocabulary.eos},
               {"tokenizer.ggml.unknown_token_id", defaults.unknown, vocabulary.unknown}};
  for (const auto& each : named) {
    const auto id = read_id(file, each.key, vocabulary, each.fallback);
    if (!id) return fail_with(id);
    each.id = *id;
  }
  if (const Status done = find_ends(file, vocabulary); !done) return fail_with(done);
  order_partition(vocabulary);
  return vocabulary;
}

}  // namespace octalane
