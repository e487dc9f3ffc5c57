#include "model/utf8_stream.h"

#include <gtest/gtest.h>

#include "model/tokenizer_golden.h"

namespace octalane {
namespace {

TEST(Utf8Stream, an_emoji_split_over_tokens_comes_out_whole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("ok \xF0"), "ok ");
  EXPECT_EQ(stream.feed("\x9F\x98"), "");
  EXPECT_EQ(stream.feed("\x80!"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, an_unfinished_character_is_replaced_at_the_end_only) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("a\xE2\x82"), "a");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.feed("\xAC"
                        "b"),
            "\xEF\xBF\xBD"
            "b");
}

TEST(Utf8Stream, invalid_bytes_are_replaced_without_waiting) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.feed("\xC3"), "");
  EXPECT_EQ(stream.feed("("), "\xEF\xBF\xBD(");
}

// Python's decoder (make_tokenizer_golden.py) also replaces maximal invalid parts.
TEST(Utf8Stream, any_split_of_a_hard_string_gives_what_python_decodes) {
  const auto replaced = golden::read_json(golden::kTokenizers + "replaced.json");
  size_t invalid = 0;
  for (const auto& [name, text] : golden::hard_strings()) {
    invalid += replaced.contains(name);
    const std::string wanted = replaced.value(name, text);
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, text.size() + 1}) {
      Utf8Stream stream;
      std::string out;
      for (size_t at = 0; at < text.size(); at += piece) out += stream.feed(std::string_view(text).substr(at, piece));
      out += stream.flush();
      EXPECT_EQ(out, wanted) << name << " in pieces of " << piece;
    }
  }
  EXPECT_EQ(invalid, replaced.size());
  EXPECT_GE(invalid, 20u);
}

}  // namespace
}  // namespace octalane
