#include "model/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "model/unicode.h"

namespace octalane {

namespace {

// White space is spelled out: \s of PCRE2 has U+180E too, which is no white space since Unicode 6.3.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define SPACES_BUT_THE_LAST "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define ANY_CASE_CONTRACTIONS "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define LETTERS_AFTER_ONE_OTHER "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS_THEN_LINES " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+"

// The expressions that the families' tokenizer.json files publish, with the changes that llama.cpp makes to them.
constexpr const char* kGpt2Words =
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES_BUT_THE_LAST;
constexpr const char* kLlama3Words =
    ANY_CASE_CONTRACTIONS "|" LETTERS_AFTER_ONE_OTHER "|\\p{N}{1,3}|" SYMBOLS_THEN_LINES "|" SPACES_BUT_THE_LAST;
constexpr const char* kQwen2Words =
    ANY_CASE_CONTRACTIONS "|" LETTERS_AFTER_ONE_OTHER "|\\p{N}|" SYMBOLS_THEN_LINES "|" SPACES_BUT_THE_LAST;
constexpr const char* kDigit = "\\p{N}";
constexpr const char* kDigits = "\\p{N}+";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
constexpr const char* kPunctuation = "[\\p{P}$+<=>^~|]+";

struct Family {
  std::string_view kind;
  bool ignore_merges = false, add_bos = false;
  std::array<const char*, 4> stages{};  // each cuts the pieces of the one before
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre
};

std::span<const Family> families() {
  static const std::vector<Family> all = {
      {.kind = "smollm",
       .stages = {kDigit, kGpt2Words},
       .names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}},
      {.kind = "llama-bpe",
       .ignore_merges = true,
       .add_bos = true,
       .stages = {kLlama3Words},
       .names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}},
      {.kind = "smaug-bpe", .stages = {kLlama3Words}, .names = {"smaug-bpe", "dbrx"}},
      {.kind = "qwen2",
       .stages = {kQwen2Words},
       .names = {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open"}},
      {.kind = "gpt-2",
       .stages = {kGpt2Words},
       .names = {"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt", "olmo", "jais", "trillion"}},
      {.kind = "default", .stages = {kPunctuation, kGpt2Words, kDigits, kThreeDigits}, .names = {"default", ""}},
  };
  return all;
}

struct Range {
  char32_t first, last, stand_in;
};

// Letters, numbers and punctuation of Unicode 15.0 and 15.1, which PCRE2 10.42 (Unicode 14) does not know, with an
// older character of the same category and length for each: words then do not depend on the PCRE2 at hand. Source:
// DerivedGeneralCategory.txt of both versions, https://www.unicode.org/Public/15.1.0/ucd/extracted/.
constexpr char32_t kLetter = 0x10000, kNumber = 0x10107, kMark = 0x10100;
constexpr Range kNewerCharacters[] = {
    {0x1123F, 0x11240, kLetter}, {0x11B00, 0x11B09, kMark},   {0x11F02, 0x11F02, kLetter}, {0x11F04, 0x11F10, kLetter},
    {0x11F12, 0x11F33, kLetter}, {0x11F43, 0x11F4F, kMark},   {0x11F50, 0x11F59, kNumber}, {0x1342F, 0x1342F, kLetter},
    {0x13441, 0x13446, kLetter}, {0x1B132, 0x1B132, kLetter}, {0x1B155, 0x1B155, kLetter}, {0x1D2C0, 0x1D2D3, kNumber},
    {0x1DF25, 0x1DF2A, kLetter}, {0x1E030, 0x1E06D, kLetter}, {0x1E4D0, 0x1E4EB, kLetter}, {0x1E4F0, 0x1E4F9, kNumber},
    {0x2B739, 0x2B739, kLetter}, {0x2EBF0, 0x2EE5D, kLetter}, {0x31350, 0x323AF, kLetter},
};

// Surrogates have no place in valid UTF-8; this is as much (no letter, number, mark or space) and as long.
constexpr char32_t kPrivateUse = 0xE000;

char32_t stand_in(char32_t code_point) {
  if (code_point >= 0xD800 && code_point <= 0xDFFF) return kPrivateUse;
  if (code_point < 0x10000) return code_point;
  const auto range = std::find_if(std::begin(kNewerCharacters), std::end(kNewerCharacters), [&](const Range& each) {
    return each.first <= code_point && code_point <= each.last;
  });
  return range == std::end(kNewerCharacters) ? code_point : range->stand_in;
}

}  // namespace

struct PreTokenizer::Expression {
  pcre2_code* code = nullptr;

  Expression() = default;
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  ~Expression() { pcre2_code_free(code); }
};

namespace {

/// Ends of the matches of `code` in text[begin, end) and of the gaps between them.
void cut(const pcre2_code* code, std::string_view text, size_t begin, size_t end, pcre2_match_data* match,
         pcre2_match_context* limits, std::vector<size_t>& ends) {
  // Only the piece is shown to the expression: looking ahead must not see beyond it.
  const auto* piece = reinterpret_cast<PCRE2_SPTR>(text.data() + begin);
  const size_t length = end - begin;
  size_t position = 0;
  while (position < length) {
    if (pcre2_match(code, piece, length, position, PCRE2_NO_UTF_CHECK, match, limits) < 1) break;
    const size_t* span = pcre2_get_ovector_pointer(match);
    if (span[1] <= position) break;
    if (span[0] > position) ends.push_back(begin + span[0]);
    ends.push_back(begin + span[1]);
    position = span[1];
  }
  if (position < length) ends.push_back(end);
}

template <class T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* pointer) const { Free(pointer); }
};

}  // namespace

Expected<PreTokenizer> PreTokenizer::find(std::string_view name) {
  std::string kinds;
  for (const Family& family : families()) {
    kinds += kinds.empty() ? "" : ", ";
    kinds += family.kind;
    if (std::find(family.names.begin(), family.names.end(), name) == family.names.end()) continue;

    PreTokenizer found;
    found.ignore_merges_ = family.ignore_merges;
    found.add_bos_ = family.add_bos;
    for (const char* pattern : family.stages) {
      if (!pattern) break;
      int error = 0;
      size_t where = 0;
      auto expression = std::make_shared<Expression>();
      expression->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr);
      if (!expression->code) return fail("pre-tokenizer {}: PCRE2 error {} at {} of {}", name, error, where, pattern);
      found.stages_.push_back(std::move(expression));
    }
    return found;
  }
  return fail("tokenizer.ggml.pre: wanted one of the kinds {}, got \"{}\"", kinds, name);
}

PreTokenizer::Words PreTokenizer::split(std::string_view text) const {
  Words words;
  words.text.reserve(text.size());
  std::string shown;  // byte for byte beside words.text, with stand-ins
  shown.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const DecodedCodePoint code_point = decode_utf8(text, offset);
    append_utf8(words.text, code_point.value);
    append_utf8(shown, stand_in(code_point.value));
    offset += code_point.bytes;
  }
  if (shown.empty()) return words;

  const std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data, pcre2_match_data_free>> match(
      pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context, pcre2_match_context_free>> limits(
      pcre2_match_context_create(nullptr));
  // Every expression is linear in the text; the usual limit of ten million steps only cuts long runs of spaces short.
  pcre2_set_match_limit(limits.get(), std::numeric_limits<uint32_t>::max());

  words.ends = {shown.size()};
  std::vector<size_t> finer;
  for (const auto& stage : stages_) {
    finer.clear();
    size_t begin = 0;
    for (const size_t end : words.ends) {
      cut(stage->code, shown, begin, end, match.get(), limits.get(), finer);
      begin = end;
    }
    words.ends.swap(finer);
  }
  return words;
}

}  // namespace octalane
