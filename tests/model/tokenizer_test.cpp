// Token for token as llama.cpp.
#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "model/pre_tokenizer.h"
#include "model/tokenizer_golden.h"

namespace octalane {
namespace {

class Recorded : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = golden::path_of(GetParam());
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "the model file is absent: " << path;
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    auto loaded = Tokenizer::load(*file);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer = std::move(*loaded);
    recording = golden::read_json(golden::kTokenizers + GetParam() + ".json");
  }

  std::optional<Tokenizer> tokenizer;
  golden::json recording;
};

TEST_P(Recorded, hard_strings_give_the_tokens_of_llama_cpp) {
  const auto strings = golden::hard_strings();
  ASSERT_GE(strings.size(), 200u);
  ASSERT_EQ(strings.size(), recording["hard"].size());
  for (const auto& [name, text] : strings) {
    SCOPED_TRACE(name);
    const auto plain = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    const auto special = tokenizer->encode(text, {.add_special = true, .parse_special = true});
    EXPECT_EQ(golden::kept(plain), recording["hard"][name][0]);
    EXPECT_EQ(golden::kept(special), recording["hard"][name][1]);
  }
}

TEST_P(Recorded, two_thousand_corpus_lines_give_the_tokens_of_llama_cpp) {
  const auto lines = golden::corpus_lines();
  if (lines.empty()) GTEST_SKIP() << "no corpus beside the repository (../shared/corpus)";
  ASSERT_EQ(lines.size(), recording["corpus"].size());
  int different = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    different += golden::hash_ids(tokenizer->encode(lines[i], {.add_special = false})) != recording["corpus"][i];
  EXPECT_EQ(different, 0);
}

TEST_P(Recorded, special_tokens_and_all_pieces_are_those_of_llama_cpp) {
  EXPECT_EQ(tokenizer->size(), recording["size"]);
  EXPECT_EQ(tokenizer->bos(), recording["bos"]);
  EXPECT_EQ(tokenizer->eos(), recording["eos"]);
  std::vector<int32_t> ends;
  golden::Hash pieces;
  for (int32_t token = 0; token < tokenizer->size(); ++token) {
    if (tokenizer->ends_generation(token)) ends.push_back(token);
    for (const bool special : {false, true}) {
      const std::string piece = tokenizer->decode(token, special);
      pieces.add(static_cast<uint32_t>(piece.size()));
      pieces.add(piece);
    }
  }
  EXPECT_EQ(golden::json(ends), recording["ends"]);
  EXPECT_EQ(pieces.hex(), recording["pieces"]);
}

TEST_P(Recorded, tokens_outside_the_vocabulary_are_nothing) {
  for (const int32_t token : {-1, tokenizer->size(), INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(tokenizer->decode(token, true), "");
    EXPECT_FALSE(tokenizer->ends_generation(token));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Recorded,
                         testing::Values("smollm2", "smollm", "llama-bpe", "qwen2", "gpt-2", "default", "spm",
                                         "spm-no-prefix"),
                         [](const auto& values) {
                           std::string name = values.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

Tokenizer load(const std::string& vocabulary) { return *Tokenizer::load(*GgufFile::open(golden::path_of(vocabulary))); }

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += tokenizer.decode(token, true);
  return text;
}

TEST(Tokenizer, decoding_gives_the_text_back) {
  // The vocabularies lack a byte and have merges that build no token: texts with those lose something on the way.
  const std::vector<std::string> lossy = {"controls", "merge into no token"};
  for (const char* vocabulary : {"smollm", "llama-bpe", "qwen2", "gpt-2", "default"}) {
    const Tokenizer tokenizer = load(vocabulary);
    for (const auto& [name, text] : golden::hard_strings()) {
      if (std::find(lossy.begin(), lossy.end(), name) != lossy.end()) continue;
      const std::string valid = PreTokenizer::find(vocabulary)->split(text).text;
      EXPECT_EQ(decode(tokenizer, tokenizer.encode(text, {.add_special = false})), valid) << vocabulary << ": " << name;
    }
  }
}

TEST(Tokenizer, bytes_beyond_unicode_are_each_one_replacement_character) {
  // llama.cpp ends the program here.
  const Tokenizer tokenizer = load("qwen2");
  const auto replaced = tokenizer.encode(
      "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
      "b",
      {.add_special = false});
  EXPECT_EQ(tokenizer.encode("a\xF4\x90\x80\x80"
                             "b",
                             {.add_special = false}),
            replaced);
}

TEST(Tokenizer, one_long_word_takes_no_quadratic_time) {
  // A loop over all pairs for each merge would need 10^11 steps.
  const std::string text(300'000, 'a');
  for (const char* vocabulary : {"llama-bpe", "spm-no-prefix"}) {
    const Tokenizer tokenizer = load(vocabulary);
    EXPECT_EQ(decode(tokenizer, tokenizer.encode(text, {.add_special = false})), text) << vocabulary;
  }
}

TEST(Tokenizer, copies_share_one_state_that_outlives_the_file) {
  std::optional<Tokenizer> first = load("spm");
  const Tokenizer second = *first;
  first.reset();
  EXPECT_FALSE(second.encode("still here").empty());
}

TEST(PreTokenizer, names_of_one_family_cut_alike) {
  const std::string text = "I'LL pay 12345 $5.50...\n\n  ok";
  const auto cut = [&](const char* name) { return PreTokenizer::find(name)->split(text).ends; };
  EXPECT_EQ(cut("llama3"), cut("llama-bpe"));
  EXPECT_EQ(cut("smaug-bpe"), cut("llama-bpe"));
  EXPECT_EQ(cut("deepseek-r1-qwen"), cut("qwen2"));
  EXPECT_EQ(cut("starcoder"), cut("smollm"));
  EXPECT_EQ(cut("olmo"), cut("gpt-2"));
  const std::vector<std::vector<size_t>> families = {cut("llama-bpe"), cut("qwen2"), cut("smollm"), cut("gpt-2"),
                                                     cut("default")};
  for (size_t i = 0; i < families.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(families[i], families[j]) << i << " and " << j;
}

TEST(PreTokenizer, words_cover_the_text_and_are_not_empty) {
  for (const char* name : {"smollm", "llama-bpe", "qwen2", "gpt-2", "default"}) {
    const PreTokenizer pre_tokenizer = *PreTokenizer::find(name);
    for (const auto& [title, text] : golden::hard_strings()) {
      const auto words = pre_tokenizer.split(text);
      EXPECT_TRUE(std::is_sorted(words.ends.begin(), words.ends.end(), std::less_equal<>())) << name << ": " << title;
      EXPECT_EQ(words.ends.empty() ? 0 : words.ends.back(), words.text.size()) << name << ": " << title;
    }
  }
}

TEST(PreTokenizer, unknown_names_are_refused_with_the_known_kinds) {
  const auto found = PreTokenizer::find("tekken");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message,
            "tokenizer.ggml.pre: wanted one of the kinds smollm, llama-bpe, smaug-bpe, qwen2, gpt-2, default, got "
            "\"tekken\"");
}

}  // namespace
}  // namespace octalane
