// Vocabularies that are wrong: one clear line that names the key, and never a read out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "model/tokenizer.h"
#include "model/tokenizer_golden.h"
#include "model/vocabulary_file.h"

namespace octalane {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A small vocabulary, each part of which a test may replace or leave out ("" or empty).
struct Parts {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens = {"a", "b", "ab", "<|im_end|>"};
  std::vector<int32_t> types = {1, 1, 1, 3};
  std::vector<float> scores;
  std::vector<std::string> merges = {"a b"};
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};

  Expected<Tokenizer> load() const {
    const auto file = metadata_file([&](GgufWriter& writer) {
      if (!model.empty()) writer.set("tokenizer.ggml.model", GgufType::string, std::string_view(model));
      if (!pre.empty()) writer.set("tokenizer.ggml.pre", GgufType::string, std::string_view(pre));
      if (!tokens.empty()) writer.set_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
      if (!types.empty()) writer.set_array("tokenizer.ggml.token_type", std::span<const int32_t>(types));
      if (!scores.empty()) writer.set_array("tokenizer.ggml.scores", std::span<const float>(scores));
      if (!merges.empty()) writer.set_array("tokenizer.ggml.merges", std::span<const std::string>(merges));
      more(writer);
    });
    if (!file) return fail_with(file);
    return Tokenizer::load(*file);
  }

  std::string error() const {
    const auto loaded = load();
    return loaded ? "no error" : loaded.error().message;
  }
};

Parts with(void (*change)(Parts&)) {
  Parts parts;
  change(parts);
  return parts;
}

Parts with_id(const char* key, int64_t id) {
  Parts parts;
  parts.more = [=](GgufWriter& writer) { writer.set(key, GgufType::i64, id); };
  return parts;
}

TEST(TokenizerErrors, the_small_vocabulary_itself_is_good) {
  const auto tokenizer = Parts().load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("abba<|im_end|>", {.parse_special = true}), (std::vector<int32_t>{2, 1, 0, 3}));
  EXPECT_TRUE(tokenizer->ends_generation(3));
  EXPECT_EQ(tokenizer->bos(), -1);
}

TEST(TokenizerErrors, a_missing_key_is_named) {
  EXPECT_THAT(with([](Parts& p) { p.model = ""; }).error(), HasSubstr("\"tokenizer.ggml.model\" is missing"));
  EXPECT_THAT(with([](Parts& p) { p.tokens = {}; }).error(), HasSubstr("\"tokenizer.ggml.tokens\" is missing"));
  EXPECT_THAT(with([](Parts& p) { p.merges = {}; }).error(), HasSubstr("\"tokenizer.ggml.merges\" is missing"));
  EXPECT_THAT(with([](Parts& p) { p.model = "llama"; }).error(), HasSubstr("\"tokenizer.ggml.scores\" is missing"));
}

TEST(TokenizerErrors, an_unknown_kind_is_named_with_the_known_ones) {
  EXPECT_THAT(with([](Parts& p) { p.model = "bert"; }).error(),
              AllOf(HasSubstr("\"tokenizer.ggml.model\""), HasSubstr("wanted \"gpt2\" or \"llama\", got \"bert\"")));
  EXPECT_THAT(with([](Parts& p) { p.pre = "kimi-k2"; }).error(),
              AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("smollm"), HasSubstr("got \"kimi-k2\"")));
}

TEST(TokenizerErrors, lists_of_a_wrong_length_or_content_are_named) {
  EXPECT_THAT(with([](Parts& p) {
                p.types = {1, 1};
              }).error(),
              AllOf(HasSubstr("\"tokenizer.ggml.token_type\""), HasSubstr("wanted 4 types, got 2")));
  EXPECT_THAT(with([](Parts& p) {
                p.scores = {0, 1, 2};
              }).error(),
              AllOf(HasSubstr("\"tokenizer.ggml.scores\""), HasSubstr("wanted 4 scores, got 3")));
  EXPECT_THAT(with([](Parts& p) {
                p.scores = {0, 1, NAN, 2};
              }).error(),
              AllOf(HasSubstr("\"tokenizer.ggml.scores\""), HasSubstr("NaN at 2")));
  EXPECT_THAT(with([](Parts& p) {
                p.tokens = {"a", "b", "a", "c"};
              }).error(),
              AllOf(HasSubstr("\"tokenizer.ggml.tokens\""), HasSubstr("\"a\" as number 0 and 2")));
}

TEST(TokenizerErrors, a_merge_that_is_not_two_pieces_is_named) {
  for (const char* line : {"", " ", "ab", "ab ", " ab"}) {
    Parts parts;
    parts.merges = {"a b", line};
    EXPECT_THAT(parts.error(),
                AllOf(HasSubstr("\"tokenizer.ggml.merges\""), HasSubstr("element 1"), HasSubstr("two pieces")))
        << '"' << line << '"';
  }
}

TEST(TokenizerErrors, ids_outside_the_vocabulary_are_named) {
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id", "tokenizer.ggml.unknown_token_id",
                          "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_pre_token_id"}) {
    EXPECT_EQ(with_id(key, 3).error(), "no error");
    for (const int64_t id : {int64_t{4}, int64_t{-1}, INT64_MAX, INT64_MIN})
      EXPECT_THAT(with_id(key, id).error(), AllOf(HasSubstr(key), HasSubstr("below 4"), HasSubstr(std::to_string(id))));
  }
}

TEST(TokenizerErrors, values_of_a_wrong_type_are_named) {
  Parts parts;
  parts.more = [](GgufWriter& writer) { writer.set("tokenizer.ggml.add_bos_token", GgufType::u32, uint64_t{1}); };
  EXPECT_THAT(parts.error(), AllOf(HasSubstr("\"tokenizer.ggml.add_bos_token\""), HasSubstr("bool")));
  parts.tokens = {};
  parts.more = [](GgufWriter& writer) {
    writer.set_array("tokenizer.ggml.tokens", std::span<const int32_t>(std::vector<int32_t>{1, 2}));
  };
  EXPECT_THAT(parts.error(), AllOf(HasSubstr("\"tokenizer.ggml.tokens\""), HasSubstr("wanted a string")));
}

TEST(TokenizerErrors, without_byte_tokens_a_score_vocabulary_says_unknown) {
  Parts parts;
  parts.model = "llama";
  parts.tokens = {"<unk>", "<s>", "</s>", "a"};
  parts.types = {2, 3, 3, 1};
  parts.scores = {0, 0, 0, -1};
  const auto tokenizer = parts.load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("a!"), (std::vector<int32_t>{1, 0, 0, 0, 3, 0}));  // U+2581 is three bytes
}

TEST(TokenizerErrors, text_without_any_token_is_dropped) {
  EXPECT_EQ(Parts().load()->encode("xyz \n"), std::vector<int32_t>{});
}

/// Whatever the bytes of a vocabulary are, loading fails with a line or the tokenizer works.
TEST(TokenizerErrors, damaged_files_never_crash) {
  std::mt19937 random(20240229);
  int loaded_ones = 0, refused = 0;
  for (const char* vocabulary : {"llama-bpe", "spm-no-prefix"}) {
    std::ifstream in(golden::path_of(vocabulary), std::ios::binary);
    const std::string good((std::istreambuf_iterator<char>(in)), {});
    for (int round = 0; round < 150; ++round) {
      std::string bytes = good;
      for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
        // Half of the damage goes to the keys at the two ends, where it is not only a letter of a token.
        const size_t place = random() % 2   ? random() % bytes.size()
                             : random() % 2 ? random() % 700
                                            : bytes.size() - 1 - random() % 700;
        bytes[place] = static_cast<char>(random());
      }
      const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
      const auto tokenizer = file ? Tokenizer::load(*file) : fail_with(file);
      if (!tokenizer) {
        ++refused;
        EXPECT_FALSE(tokenizer.error().message.empty());
        EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
        continue;
      }
      ++loaded_ones;
      const auto tokens = tokenizer->encode("We'll say <user>42\xFF\n <|im_end|>", {.parse_special = true});
      for (const int32_t token : tokens) {
        EXPECT_GE(token, 0);
        EXPECT_LT(token, tokenizer->size());
        tokenizer->decode(token);
      }
    }
  }
  EXPECT_GT(loaded_ones, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace octalane
