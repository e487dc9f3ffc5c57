// Headers that lie. Each case lies in an exact heap copy, so that AddressSanitizer sees every read outside of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "files/files_testing.h"
#include "files/read_safetensors.h"

namespace octalane {
namespace {

using testing::ExactBytes;

std::string with_length(uint64_t length, std::string_view rest) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes += rest;
}
std::string file_of(std::string_view header, size_t data) {
  return with_length(header.size(), std::string(header) + std::string(data, 'd'));
}

/// The error of these bytes; "accepted" when they parse (everything is then read).
std::string verdict(std::string_view text) {
  const ExactBytes bytes(text);
  const auto file = SafetensorsFile::parse(bytes.span(), "bad");
  if (!file) return file.error().message;
  testing::read_everything(*file, bytes.span().data());
  return "accepted";
}
std::string verdict(std::string_view header, size_t data) { return verdict(file_of(header, data)); }

/// The error about a file of one tensor with these fields, behind "bad: tensor "t" at byte N: ".
std::string tensor_verdict(std::string_view fields, size_t data) {
  const std::string got = verdict(fmt::format(R"({{"t":{{{}}}}})", fields), data);
  const std::string begin = "bad: tensor \"t\" at byte ";
  if (!got.starts_with(begin)) return got;
  return got.substr(got.find(": ", begin.size()) + 2);
}
std::string extent_verdict(std::string_view dtype, std::string_view shape, std::string_view offsets, size_t data) {
  return tensor_verdict(fmt::format(R"("dtype":"{}","shape":{},"data_offsets":{})", dtype, shape, offsets), data);
}

const std::vector<std::string> kGolden{"types", "mlx", "empty"};

std::string golden_bytes(const std::string& name) {
  return testing::read_bytes(testing::golden("safetensors/" + name + ".safetensors"));
}

TEST(SafetensorsHostile, every_truncation_is_refused) {
  for (const std::string& name : kGolden) {
    const std::string whole = golden_bytes(name);
    ASSERT_EQ(verdict(whole), "accepted");
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string got = verdict(std::string_view(whole).substr(0, size));
      ASSERT_TRUE(got.starts_with("bad: ")) << name << " cut at " << size << ": " << got;
      ASSERT_NE(got.find(" byte "), std::string::npos) << got;
      ASSERT_EQ(got.find('\n'), std::string::npos) << got;
    }
    EXPECT_NE(verdict(whole + "x"), "accepted") << "a byte that belongs to no tensor";
  }
}

TEST(SafetensorsHostile, every_changed_byte_is_survived) {
  size_t accepted = 0, refused = 0;
  for (const std::string& name : kGolden) {
    const std::string whole = golden_bytes(name);
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {0x01, 0x02, 0x10, 0x80, 0xFF}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ change);
        (verdict(changed) == "accepted" ? accepted : refused) += 1;
      }
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 1000u);
}

TEST(SafetensorsHostile, a_header_whose_length_cannot_be) {
  EXPECT_EQ(verdict(""), "bad: header at byte 0: wanted the 8 bytes of its length, the file ends after 0");
  EXPECT_EQ(verdict(with_length(2, "{}").substr(0, 7)),
            "bad: header at byte 0: wanted the 8 bytes of its length, the file ends after 7");
  EXPECT_EQ(verdict(with_length(3, "{}")), "bad: header at byte 0: 3 bytes, the file ends after 2");
  EXPECT_EQ(verdict(with_length(100'000'000, "{}")), "bad: header at byte 0: 100000000 bytes, the file ends after 2");
  EXPECT_EQ(verdict(with_length(100'000'001, "{}")),
            "bad: header at byte 0: wanted at most 100000000 bytes, got 100000001");
  EXPECT_EQ(verdict(with_length(~uint64_t{0}, "{}")),
            "bad: header at byte 0: wanted at most 100000000 bytes, got 18446744073709551615");
  EXPECT_EQ(verdict(with_length(0, "")), "bad: header at byte 8: wanted {, got \"\"");
  EXPECT_EQ(verdict(with_length(2, "{}")), "accepted");
}

TEST(SafetensorsHostile, a_header_that_is_not_json) {
  EXPECT_EQ(verdict("[]", 0), "bad: header at byte 8: wanted {, got \"[\"");
  EXPECT_EQ(verdict(" {}", 0), "bad: header at byte 8: wanted {, got \" \"");
  EXPECT_EQ(verdict("{}   ", 0), "accepted") << "padding";
  const std::pair<std::string_view, int> cases[] = {{"{", 9},
                                                    {"{}}", 11},
                                                    {"{}x", 11},
                                                    {"{}{}", 11},
                                                    {"{,}", 10},
                                                    {"{'t':1}", 10},
                                                    {"{}//", 11},
                                                    {"{\"\xFF\":1}", 11},
                                                    {R"({"t)", 11},
                                                    {"{\"t\n\":1}", 12},
                                                    {R"({"\ud800":1})", 17},
                                                    {std::string_view("{}\0", 3), 10},
                                                    {std::string_view("{}\0{}", 5), 10},
                                                    {std::string_view("{\"a\0\":1}", 8), 11}};
  for (const auto& [header, byte] : cases)
    EXPECT_EQ(verdict(header, 0), fmt::format("bad: header at byte {}: the header is not valid JSON", byte)) << header;
}

TEST(SafetensorsHostile, nesting_is_refused_at_once_however_deep) {
  constexpr size_t kDeep = 10'000'000;
  EXPECT_EQ(verdict("{\"t\":" + std::string(kDeep, '['), 0),
            "bad: tensor \"t\" at byte 14: wanted an object, got an array");
  EXPECT_EQ(tensor_verdict("\"shape\":" + std::string(kDeep, '['), 0), "wanted a natural number, got an array");
  std::string objects = "{";
  for (size_t i = 0; i < kDeep / 5; ++i) objects += "\"a\":{";
  EXPECT_EQ(verdict(objects, 0), "bad: tensor \"a\" at byte 17: wanted dtype, shape or data_offsets, got \"a\"");
}

TEST(SafetensorsHostile, a_tensor_that_is_no_object_of_its_three_fields) {
  for (const auto& [value, what] :
       {std::pair{"1", "a number"}, std::pair{"-1", "a negative number"}, std::pair{"1.5", "a fraction"},
        std::pair{"\"x\"", "a string"}, std::pair{"null", "null"}, std::pair{"true", "a boolean"}}) {
    const std::string got = verdict(fmt::format(R"({{"t":{}}})", value), 0);
    EXPECT_TRUE(got.ends_with(fmt::format(": wanted an object, got {}", what))) << got;
  }
  EXPECT_EQ(tensor_verdict("", 0), "its dtype is missing");
  EXPECT_EQ(tensor_verdict(R"("dtype":"U8","data_offsets":[0,0])", 0), "its shape is missing");
  EXPECT_EQ(tensor_verdict(R"("dtype":"U8","shape":[0])", 0), "its data_offsets is missing");
  EXPECT_EQ(tensor_verdict(R"("dtype":"U8","dtype":"U8")", 0), "a second dtype");
  EXPECT_EQ(tensor_verdict(R"("shape":[],"shape":[])", 0), "a second shape");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[0,1],"data_offsets":[0,1])", 0), "a second data_offsets");
  EXPECT_EQ(tensor_verdict(R"("strides":[1])", 0), "wanted dtype, shape or data_offsets, got \"strides\"");
}

TEST(SafetensorsHostile, fields_of_the_wrong_kind) {
  EXPECT_EQ(tensor_verdict(R"("dtype":8)", 0), "wanted a string, got a number");
  EXPECT_EQ(tensor_verdict(R"("dtype":["U8"])", 0), "wanted a string, got an array");
  EXPECT_EQ(tensor_verdict(R"("dtype":null)", 0), "wanted a string, got null");
  EXPECT_EQ(tensor_verdict(R"("dtype":"u8")", 0), "unknown dtype \"u8\"");
  EXPECT_EQ(tensor_verdict(R"("dtype":"")", 0), "unknown dtype \"\"");
  EXPECT_EQ(tensor_verdict(R"("shape":3)", 0), "wanted an array, got a number");
  EXPECT_EQ(tensor_verdict(R"("shape":{})", 0), "wanted an array, got an object");
  EXPECT_EQ(tensor_verdict(R"("shape":[1,"2"])", 0), "wanted a natural number, got a string");
  EXPECT_EQ(tensor_verdict(R"("shape":[-1])", 0), "wanted a natural number, got a negative number");
  EXPECT_EQ(tensor_verdict(R"("shape":[1.0])", 0), "wanted a natural number, got a fraction");
  EXPECT_EQ(tensor_verdict(R"("shape":[1e2])", 0), "wanted a natural number, got a fraction");
  EXPECT_EQ(tensor_verdict(R"("shape":[1e999])", 0), "the header is not valid JSON");
  EXPECT_EQ(tensor_verdict(R"("shape":[18446744073709551616])", 0), "wanted a natural number, got a fraction");
  EXPECT_EQ(tensor_verdict(R"("shape":[9223372036854775808])", 0), "dimension 9223372036854775808 is too large");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":"0,1")", 0), "wanted an array of two numbers, got a string");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[])", 0), "wanted 2 data_offsets, got 0");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[0])", 0), "wanted 2 data_offsets, got 1");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[0,1,2])", 0), "wanted 2 data_offsets, got 3");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[0,-1])", 0), "wanted a natural number, got a negative number");
  EXPECT_EQ(tensor_verdict(R"("data_offsets":[0,[1]])", 0), "wanted a natural number, got an array");
}

TEST(SafetensorsHostile, extents_that_disagree) {
  EXPECT_EQ(extent_verdict("F32", "[2,3]", "[0,24]", 24), "accepted");
  EXPECT_EQ(extent_verdict("F32", "[]", "[0,4]", 4), "accepted");
  EXPECT_EQ(extent_verdict("F32", "[0,3]", "[0,0]", 0), "accepted");
  EXPECT_EQ(extent_verdict("F32", "[2,3]", "[0,23]", 24),
            "its dtype and shape need 24 bytes, its data_offsets hold 23");
  EXPECT_EQ(extent_verdict("F16", "[2,3]", "[0,24]", 24),
            "its dtype and shape need 12 bytes, its data_offsets hold 24");
  EXPECT_EQ(extent_verdict("F32", "[0,3]", "[0,24]", 24), "its dtype and shape need 0 bytes, its data_offsets hold 24");
  EXPECT_EQ(extent_verdict("U8", "[8]", "[8,0]", 8), "data_offsets 8 to 0 of the data section, which has 8 bytes");
  EXPECT_EQ(extent_verdict("U8", "[8]", "[0,8]", 7), "data_offsets 0 to 8 of the data section, which has 7 bytes");
  EXPECT_EQ(extent_verdict("U8", "[8]", "[18446744073709551608,0]", 8),
            "data_offsets 18446744073709551608 to 0 of the data section, which has 8 bytes");
  EXPECT_EQ(extent_verdict("F4", "[2,2]", "[0,2]", 2), "accepted");
  EXPECT_EQ(extent_verdict("F4", "[3]", "[0,2]", 2), "3 values of 4 bits are not whole bytes");
  EXPECT_EQ(extent_verdict("F6_E2M3", "[4]", "[0,3]", 3), "accepted");
}

TEST(SafetensorsHostile, shapes_that_overflow) {
  const auto shaped = [](std::string_view shape) { return extent_verdict("F32", shape, "[0,0]", 0); };
  EXPECT_EQ(shaped("[4294967296,4294967296]"), "the product of its dimensions overflows");
  EXPECT_EQ(shaped("[0,4611686018427387904,4611686018427387904]"), "the product of its dimensions overflows");
  EXPECT_EQ(shaped("[4611686018427387904,0,4611686018427387904]"), "the product of its dimensions overflows");
  EXPECT_EQ(shaped("[4611686018427387904]"), "its size in bits overflows");
  EXPECT_EQ(shaped("[9223372036854775807]"), "its size in bits overflows");
  std::string ones = "[1";
  for (int i = 0; i < 100000; ++i) ones += ",1";
  EXPECT_EQ(extent_verdict("U8", ones + "]", "[0,1]", 1), "accepted");
}

TEST(SafetensorsHostile, overlaps_and_holes) {
  const auto two = [](std::string_view first, std::string_view second, size_t data) {
    return verdict(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                               R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                               first, second),
                   data);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "accepted");
  EXPECT_EQ(two("[0,4]", "[3,7]", 8),
            "bad: tensor \"b\" at byte 64: its data at offset 3 overlaps other data, which ends at 4");
  EXPECT_EQ(two("[0,4]", "[0,4]", 8),
            "bad: tensor \"b\" at byte 64: its data at offset 0 overlaps other data, which ends at 4");
  EXPECT_EQ(two("[0,4]", "[5,9]", 9),
            "bad: tensor \"b\" at byte 64: its data at offset 5 leaves a hole: other data ends at 4");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9),
            "bad: tensor \"a\" at byte 12: its data at offset 1 leaves a hole: other data ends at 0");
  EXPECT_EQ(two("[0,4]", "[4,8]", 9), "bad: data section at byte 113: it has 9 bytes, the tensors only 8");
  EXPECT_EQ(verdict("{}", 1), "bad: data section at byte 10: it has 1 bytes, the tensors only 0");
  EXPECT_EQ(verdict(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                    4),
            "bad: tensor \"e\" at byte 64: its data at offset 2 overlaps other data, which ends at 4");
}

TEST(SafetensorsHostile, names_and_keys_that_are_there_twice) {
  const auto tensor = [](std::string_view name, int begin) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", name, begin, begin + 1);
  };
  EXPECT_EQ(verdict(fmt::format("{{{},{}}}", tensor("w", 0), tensor("w", 1)), 2),
            "bad: tensor \"w\" at byte 64: a second tensor of this name; the first is at byte 12");
  EXPECT_EQ(verdict(fmt::format("{{{},{}}}", tensor("w", 0), tensor("\\u0077", 1)), 2),
            "bad: tensor \"w\" at byte 69: a second tensor of this name; the first is at byte 12")
      << "the same name, spelled with an escape";
  EXPECT_EQ(verdict(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
            "bad: key \"a\" at byte 36: a second key of this name; the first is at byte 28");
  EXPECT_EQ(verdict(R"({"__metadata__":{},"__metadata__":{}})", 0),
            "bad: key \"__metadata__\" at byte 41: a second key of this name");
}

TEST(SafetensorsHostile, metadata_is_an_object_of_strings) {
  EXPECT_EQ(verdict(R"({"__metadata__":{"a":"1","":""}})", 0), "accepted");
  for (const auto& [value, what] : {std::pair{"1", "a number"}, std::pair{"[]", "an array"},
                                    std::pair{"{}", "an object"}, std::pair{"null", "null"}}) {
    const std::string got = verdict(fmt::format(R"({{"__metadata__":{{"a":{}}}}})", value), 0);
    EXPECT_TRUE(got.starts_with("bad: key \"a\" at byte ")) << got;
    EXPECT_TRUE(got.ends_with(fmt::format(": wanted a string, got {}", what))) << got;
  }
  EXPECT_NE(verdict(R"({"__metadata__":"pt"})", 0).find("key \"__metadata__\""), std::string::npos);
  EXPECT_NE(verdict(R"({"__metadata__":[]})", 0).find("wanted an object, got an array"), std::string::npos);
}

TEST(SafetensorsHostile, names_in_errors_are_one_short_printable_line) {
  const std::string got =
      verdict(R"({"a\n\u001b[31m\")" + std::string(5000, 'z') + R"(":{"dtype":")" + std::string(5000, 'y') + "\"}}", 0);
  EXPECT_NE(got.find("tensor \"a\\x0a\\x1b[31m\\x22zzz"), std::string::npos) << got;
  EXPECT_LT(got.size(), 400u);
}

}  // namespace
}  // namespace octalane
