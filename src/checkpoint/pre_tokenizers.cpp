#include "checkpoint/pre_tokenizers.h"

#include <array>

namespace octalane {
namespace {

// Expressions as the families' tokenizer.json files have them; they differ in how many digits go together.
#define BEFORE_DIGITS R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)"
#define AFTER_DIGITS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

struct Kind {
  std::string_view name;
  std::string_view split;  ///< the expression of a Split step; empty: ByteLevel's own
  bool digits;             ///< a Digits step, one digit at a time, before it
};
constexpr std::array kKinds = std::to_array<Kind>({
    {"smollm", "", true},
    {"gpt-2", "", false},
    {"llama-bpe", BEFORE_DIGITS R"(\p{N}{1,3})" AFTER_DIGITS, false},
    {"qwen2", BEFORE_DIGITS R"(\p{N})" AFTER_DIGITS, false},
});

Json byte_level(bool own_expression) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_expression}};
}

Json steps_of(const Kind& kind) {
  Json steps = Json::array();
  if (kind.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!kind.split.empty()) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", kind.split}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level(kind.split.empty()));
  return steps;
}

/// The same cut: members that change nothing are left out of the comparison.
bool same_step(const Json& wanted, const Json& got) {
  if (text_of(member(wanted, "type")) != text_of(member(got, "type"))) return false;
  if (text_of(member(wanted, "type")) == "ByteLevel") {
    return !boolean_of(member(got, "add_prefix_space")).value_or(true) &&
           boolean_of(member(got, "use_regex")).value_or(true) == *boolean_of(member(wanted, "use_regex"));
  }
  for (const auto& [key, value] : wanted.items()) {
    const Json* other = member(got, key);
    if (other == nullptr || *other != value) return false;
  }
  return true;
}

}  // namespace

std::string_view name_of_pre_tokenizer(const Json& pre_tokenizer) {
  Json steps = Json::array();
  const Json* sequence = member(pre_tokenizer, "pretokenizers");
  if (sequence != nullptr && sequence->is_array()) {
    steps = *sequence;
  } else {
    steps.push_back(pre_tokenizer);
  }
  for (const Kind& kind : kKinds) {
    const Json wanted = steps_of(kind);
    bool same = wanted.size() == steps.size();
    for (size_t i = 0; same && i < wanted.size(); ++i) same = same_step(wanted[i], steps[i]);
    if (same) return kind.name;
  }
  return {};
}

Json pre_tokenizer_of(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name != name) continue;
    Json steps = steps_of(kind);
    if (steps.size() == 1) return steps[0];
    return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }
  return {};
}

}  // namespace octalane
