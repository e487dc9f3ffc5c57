#include "model/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "files/quote.h"
#include "model/bpe.h"
#include "model/spm.h"
#include "model/vocabulary.h"

namespace octalane {

struct Tokenizer::State {
  Vocabulary vocabulary;
  std::optional<BytePairEncoder> bytes;  // one of the two
  std::optional<ScorePairEncoder> scores;
  bool add_bos = false, add_eos = false;
  std::vector<bool> eats_spaces;  // by token, empty = none: white space behind the token goes with it
};

namespace {

/// Plain text, or one special token that the text spells.
struct Fragment {
  std::string_view text;
  int32_t token = -1;
};

/// Splits every fragment of text at each place where `token` is spelled.
void split_at(std::vector<Fragment>& fragments, std::string_view spelling, int32_t token, bool eats_spaces) {
  std::vector<Fragment> split;
  for (const Fragment& fragment : fragments) {
    std::string_view rest = fragment.text;
    size_t place = fragment.token < 0 ? rest.find(spelling) : std::string_view::npos;
    if (place == std::string_view::npos) {
      split.push_back(fragment);
      continue;
    }
    while (place != std::string_view::npos) {
      if (place > 0) split.push_back({rest.substr(0, place)});
      split.push_back({{}, token});
      rest.remove_prefix(place + spelling.size());
      while (eats_spaces && !rest.empty() && std::isspace(static_cast<unsigned char>(rest.front())))
        rest.remove_prefix(1);
      place = rest.find(spelling);
    }
    if (!rest.empty()) split.push_back({rest});
  }
  fragments.swap(split);
}

/// The Phi-3 family, also when its files claim to be llama's, drops white space behind most special tokens.
std::vector<bool> tokens_that_eat_spaces(const GgufFile& file, const Vocabulary& vocabulary) {
  std::string name(file.get_or<std::string_view>("general.name", "").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return {};
  std::vector<bool> eats(vocabulary.texts.size());
  for (const int32_t token : vocabulary.partition) {
    const std::string& text = vocabulary.texts[token];
    eats[token] = text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
  }
  return eats;
}

}  // namespace

Expected<Tokenizer> Tokenizer::load(const Checkpoint& checkpoint) {
  if (!checkpoint.model_status()) return fail_with(checkpoint.model_status());
  const GgufFile& file = checkpoint.metadata();
  constexpr std::string_view kModel = "tokenizer.ggml.model";
  const auto model = file.get<std::string_view>(kModel);
  if (!model) return fail_with(model);
  const bool by_scores = *model == "llama";
  if (!by_scores && *model != "gpt2")
    return fail("{}: key {}: wanted \"gpt2\" or \"llama\", got {}", file.path(), quote(kModel), quote(*model));

  auto vocabulary = load_vocabulary(file, by_scores ? DefaultIds{.bos = 1, .eos = 2, .unknown = 0} : DefaultIds{});
  if (!vocabulary) return fail_with(vocabulary);
  auto state = std::make_shared<State>();
  state->vocabulary = std::move(*vocabulary);
  state->eats_spaces = tokens_that_eat_spaces(file, state->vocabulary);
  if (by_scores) {
    auto encoder = ScorePairEncoder::load(file, state->vocabulary);
    if (!encoder) return fail_with(encoder);
    state->scores = std::move(*encoder);
  } else {
    auto encoder = BytePairEncoder::load(file, state->vocabulary);
    if (!encoder) return fail_with(encoder);
    state->bytes = std::move(*encoder);
  }

  const bool family_adds_bos = by_scores || state->bytes->pre_tokenizer().add_bos();
  const auto add_bos = file.get_or<bool>("tokenizer.ggml.add_bos_token", family_adds_bos);
  const auto add_eos = file.get_or<bool>("tokenizer.ggml.add_eos_token", false);
  if (!add_bos) return fail_with(add_bos);
  if (!add_eos) return fail_with(add_eos);
  state->add_bos = *add_bos && state->vocabulary.bos >= 0;
  state->add_eos = *add_eos && state->vocabulary.eos >= 0;
  return Tokenizer(std::move(state));
}

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({text});
  for (const int32_t token : vocabulary.partition) {
    if (vocabulary.is_special(token) && !options.parse_special) continue;
    split_at(fragments, vocabulary.texts[token], token, !state_->eats_spaces.empty() && state_->eats_spaces[token]);
  }

  std::vector<int32_t> tokens;
  if (options.add_special && state_->add_bos) tokens.push_back(vocabulary.bos);
  bool starts = true;
  for (const Fragment& fragment : fragments) {
    if (fragment.token >= 0) {
      tokens.push_back(fragment.token);
    } else if (state_->bytes) {
      state_->bytes->encode(fragment.text, tokens);
    } else {
      state_->scores->encode(fragment.text, starts, tokens);
    }
    starts = fragment.token >= 0;
  }
  if (options.add_special && state_->add_eos) tokens.push_back(vocabulary.eos);
  return tokens;
}

std::string Tokenizer::decode(int32_t token, bool special) const {
  const Vocabulary& vocabulary = state_->vocabulary;
  if (token < 0 || token >= vocabulary.size()) return {};
  const std::string& text = vocabulary.texts[token];
  switch (vocabulary.kinds[token]) {
    case TokenKind::control:
    case TokenKind::unknown: return special ? text : std::string();
    case TokenKind::user_defined: return text;
    case TokenKind::normal: return state_->bytes ? decode_byte_alphabet(text) : decode_spaces(text);
    case TokenKind::byte: return decode_byte_token(text);
    case TokenKind::undefined:
    case TokenKind::unused: break;
  }
  return {};
}

int32_t Tokenizer::size() const { return state_->vocabulary.size(); }
int32_t Tokenizer::bos() const { return state_->vocabulary.bos; }
int32_t Tokenizer::eos() const { return state_->vocabulary.eos; }

bool Tokenizer::ends_generation(int32_t token) const {
  return std::binary_search(state_->vocabulary.ends.begin(), state_->vocabulary.ends.end(), token);
}

}  // namespace octalane
