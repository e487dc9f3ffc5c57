// Files that lie. Each case is put together byte by byte in an exact heap copy, so that AddressSanitizer sees every
// read outside of it, and each refusal must name its file, tensor or key, and byte.
#include <gtest/gtest.h>

#include "files/files_testing.h"
#include "files/ggml_types.h"
#include "files/read_everything.h"

namespace octalane {
namespace {

using testing::ExactBytes;
using testing::GgufBytes;
using testing::golden;

constexpr uint64_t kHuge = ~uint64_t{0};

/// The error of these bytes; "accepted" when they parse (everything is then read).
std::string verdict(std::string_view text) {
  const ExactBytes bytes(text);
  const auto file = GgufFile::parse(bytes.span(), "bad");
  if (!file) return file.error().message;
  testing::read_everything(*file, bytes.span().data());
  return "accepted";
}
std::string verdict(const GgufBytes& b) { return verdict(b.bytes()); }

const std::vector<std::string> kGolden{"types.v3.gguf", "tensors.v3.gguf", "aligned.v3.gguf", "built.v3.gguf"};

TEST(GgufHostile, every_truncation_is_refused_until_the_last_tensor_is_whole) {
  for (const std::string& name : kGolden) {
    const std::string whole = testing::read_bytes(golden(name));
    const ExactBytes bytes(whole);
    const auto file = GgufFile::parse(bytes.span());
    ASSERT_TRUE(file) << file.error().message;
    uint64_t needed = 0;
    for (const GgufTensor& t : file->tensors()) {
      needed = std::max(needed, static_cast<uint64_t>(t.data + t.bytes - bytes.span().data()));
    }
    if (file->tensors().empty()) {  // the header alone: its end is where the last value ends
      const auto last = file->metadata().back().second.array.bytes;
      needed = static_cast<uint64_t>(last.data() + last.size() - bytes.span().data());
    }
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string got = verdict(std::string_view(whole).substr(0, size));
      ASSERT_EQ(got == "accepted", size >= needed) << name << " cut at " << size << ": " << got;
      if (size >= needed) continue;
      ASSERT_TRUE(got.starts_with("bad: ")) << got;
      ASSERT_NE(got.find(" byte "), std::string::npos) << got;
      ASSERT_EQ(got.find('\n'), std::string::npos) << got;
    }
  }
}

TEST(GgufHostile, every_changed_byte_is_survived) {
  size_t accepted = 0, refused = 0;
  for (const std::string& name : kGolden) {
    const std::string whole = testing::read_bytes(golden(name));
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

TEST(GgufHostile, magic_and_version) {
  EXPECT_EQ(verdict("GGML"), "bad: header at byte 0: wanted the letters GGUF, got \"GGML\"");
  EXPECT_EQ(verdict(std::string_view("\n\0\xFFz", 4)),
            "bad: header at byte 0: wanted the letters GGUF, got \"\\x0a\\x00\\xffz\"");
  EXPECT_EQ(verdict(GgufBytes(0, 0, 1)), "bad: header at byte 4: wanted GGUF version 2 or 3, got 1");
  EXPECT_EQ(verdict(GgufBytes(0, 0, 4)), "bad: header at byte 4: wanted GGUF version 2 or 3, got 4");
  EXPECT_EQ(verdict(GgufBytes(0, 0, 0)), "bad: header at byte 4: wanted GGUF version 2 or 3, got 0");
  EXPECT_EQ(verdict(GgufBytes(0, 0, 0x03000000)),
            "bad: header at byte 4: this is a big-endian file; wanted a little-endian one");
  EXPECT_EQ(verdict(testing::read_bytes(golden("refused.big_endian.gguf"))),
            "bad: header at byte 4: this is a big-endian file; wanted a little-endian one");
  EXPECT_EQ(verdict(GgufBytes(0, 0)), "accepted");
}

TEST(GgufHostile, counts_that_cannot_fit) {
  EXPECT_EQ(verdict(GgufBytes(kHuge, 0)),
            "bad: header at byte 8: 18446744073709551615 tensors cannot fit in the 8 bytes left");
  EXPECT_EQ(verdict(GgufBytes(0, kHuge)),
            "bad: header at byte 16: 18446744073709551615 keys cannot fit in the 0 bytes left");
  EXPECT_EQ(verdict(GgufBytes(2, 1).key("k", GgufType::string).text(std::string(20, 'x'))),
            "bad: header at byte 8: 2 tensors cannot fit in the 0 bytes after the keys");
  // 2^61 values of 8 bytes are 2^64 bytes, 0 if one multiplies carelessly.
  for (const GgufType type : {GgufType::u64, GgufType::f64, GgufType::string, GgufType::u8, GgufType::array}) {
    GgufBytes b(0, 1);
    b.key("a", GgufType::array).type(type).u64(uint64_t{1} << 61);
    EXPECT_EQ(verdict(b), "bad: key \"a\" at byte 41: 2305843009213693952 elements cannot fit in the 0 bytes left");
  }
}

TEST(GgufHostile, strings_longer_than_the_file) {
  EXPECT_EQ(verdict(GgufBytes(0, 1).u64(kHuge).raw(std::string(16, 'x'))),
            "bad: key 0 at byte 24: a string of 18446744073709551615 bytes, the file ends after 16");
  EXPECT_EQ(verdict(GgufBytes(0, 1).key("name", GgufType::string).u64(5).raw("four")),
            "bad: key \"name\" at byte 40: a string of 5 bytes, the file ends after 4");
  EXPECT_EQ(
      verdict(GgufBytes(0, 1).key("a", GgufType::array).type(GgufType::string).u64(2).text("ok").u64(9).raw("no")),
      "bad: key \"a\" at byte 59: a string of 9 bytes, the file ends after 2");
  EXPECT_EQ(verdict(GgufBytes(1, 0).u64(1000).raw(std::string(40, 'x'))),
            "bad: tensor 0 at byte 24: a string of 1000 bytes, the file ends after 40");
}

TEST(GgufHostile, values_of_unknown_or_wrong_kind) {
  EXPECT_EQ(verdict(GgufBytes(0, 1).text("k").u32(13).u64(0)), "bad: key \"k\" at byte 33: unknown value type 13");
  EXPECT_EQ(verdict(GgufBytes(0, 1).key("k", GgufType::array).u32(99).u64(0)),
            "bad: key \"k\" at byte 37: unknown element type 99");
  EXPECT_EQ(verdict(GgufBytes(0, 1).key("k", GgufType::boolean).u8(2).u32(0)),
            "bad: key \"k\" at byte 37: a bool is 0 or 1, got 2");
  EXPECT_EQ(verdict(GgufBytes(0, 1).key("k", GgufType::array).type(GgufType::boolean).u64(2).u8(1).u8(7)),
            "bad: key \"k\" at byte 50: a bool is 0 or 1, got 7");
  EXPECT_EQ(verdict(GgufBytes(0, 1).text("").type(GgufType::u64).u64(0)), "bad: key 0 at byte 24: its name is empty");
}

TEST(GgufHostile, nested_arrays_are_read_to_a_depth) {
  const auto nested = [](int depth) {
    GgufBytes b(0, 1);
    b.key("deep", GgufType::array);
    for (int i = 0; i < depth; ++i) b.type(GgufType::array).u64(1);
    return b.type(GgufType::u8).u64(1).u8(42);
  };
  EXPECT_EQ(verdict(nested(0)), "accepted");
  EXPECT_EQ(verdict(nested(7)), "accepted");
  EXPECT_EQ(verdict(nested(8)), "bad: key \"deep\" at byte 136: arrays nested more than 8 deep");
  EXPECT_EQ(verdict(nested(100000)), "bad: key \"deep\" at byte 136: arrays nested more than 8 deep");

  const ExactBytes bytes(nested(1).bytes());
  const auto file = GgufFile::parse(bytes.span(), "nested");
  ASSERT_TRUE(file);
  const auto flat = file->get_array<int64_t>("deep");
  ASSERT_FALSE(flat);
  EXPECT_EQ(flat.error().message, "nested: key \"deep\": wanted an array of scalars, got an array of arrays");
}

TEST(GgufHostile, alignment) {
  const auto aligned = [](uint32_t alignment) {
    return GgufBytes(1, 1).key("general.alignment", GgufType::u32).u32(alignment).tensor("t", {1}, 0, 0);
  };
  EXPECT_EQ(verdict(aligned(0)), "bad: key \"general.alignment\" at byte 32: wanted a power of two, got 0");
  EXPECT_EQ(verdict(aligned(48)), "bad: key \"general.alignment\" at byte 32: wanted a power of two, got 48");
  EXPECT_EQ(verdict(GgufBytes(0, 1).key("general.alignment", GgufType::string).text("32")),
            "bad: key \"general.alignment\" at byte 32: wanted u32, got string");
  EXPECT_EQ(verdict(aligned(0x80000000)),
            "bad: tensor \"t\" at byte 65: 4 bytes at offset 0 of the data section (byte 90), which has 0 bytes");
  EXPECT_EQ(verdict(aligned(16).pad(16).u32(0)), "accepted");
  EXPECT_EQ(verdict(aligned(1).u32(0)), "accepted");
}

TEST(GgufHostile, offsets_outside_unaligned_or_overflowing) {
  const auto at = [](uint64_t offset) {
    return GgufBytes(1, 0).tensor("t", {8}, 0, offset).pad().raw(std::string(64, 0));
  };
  EXPECT_EQ(verdict(at(0)), "accepted");
  EXPECT_EQ(verdict(at(32)), "accepted");
  EXPECT_EQ(verdict(at(64)),
            "bad: tensor \"t\" at byte 32: 32 bytes at offset 64 of the data section (byte 64), which has 64 bytes");
  EXPECT_EQ(
      verdict(at(kHuge - 31)),
      "bad: tensor \"t\" at byte 32: 32 bytes at offset 18446744073709551584 of the data section (byte 64), which "
      "has 64 bytes");
  EXPECT_EQ(verdict(at(4)), "bad: tensor \"t\" at byte 49: its data offset 4 is not a multiple of the alignment 32");
}

TEST(GgufHostile, shapes_that_overflow) {
  const auto shaped = [](std::vector<int64_t> shape, uint32_t type = 0) {
    return verdict(GgufBytes(1, 0).tensor("t", std::move(shape), type, 0).pad().raw(std::string(64, 0)));
  };
  constexpr int64_t k32 = int64_t{1} << 32, k62 = int64_t{1} << 62;
  EXPECT_EQ(shaped({4, 4}), "accepted");
  EXPECT_EQ(shaped({k32, k32}), "bad: tensor \"t\" at byte 33: the product of its dimensions overflows");
  EXPECT_EQ(shaped({0, k62, k62}), "bad: tensor \"t\" at byte 33: the product of its dimensions overflows");
  EXPECT_EQ(shaped({k62, 0, k62}), "bad: tensor \"t\" at byte 33: the product of its dimensions overflows");
  EXPECT_EQ(shaped({k62, 1}), "bad: tensor \"t\" at byte 33: its size in bytes overflows");
  EXPECT_EQ(shaped({-4, -4}), "bad: tensor \"t\" at byte 33: dimension -4 is negative");
  EXPECT_EQ(shaped({33}, 2), "bad: tensor \"t\" at byte 33: 33 columns is not a multiple of 32, the block of q4_0");
  EXPECT_EQ(shaped({1, 1, 1, 1, 1}), "bad: tensor \"t\" at byte 33: wanted at most 4 dimensions, got 5");
  EXPECT_EQ(verdict(GgufBytes(1, 0).text("t").u32(0xFFFFFFFF).raw(std::string(64, 0))),
            "bad: tensor \"t\" at byte 33: wanted at most 4 dimensions, got 4294967295");
}

TEST(GgufHostile, tensors_without_dimensions_or_values_are_read) {
  GgufBytes b(4, 0);
  b.tensor("scalar", {}, 0, 0).tensor("empty", {0}, 2, 32).tensor("no_rows", {256, 0}, 12, 32);
  b.tensor("last", {1}, 0, 32).pad().u32(0x3F800000).pad().u32(0);
  const ExactBytes bytes(b.bytes());
  const auto file = GgufFile::parse(bytes.span());
  ASSERT_TRUE(file) << file.error().message;
  const GgufTensor& scalar = *file->find_tensor("scalar");
  EXPECT_EQ(scalar.rows() * scalar.cols(), 1);
  EXPECT_EQ(scalar.bytes, 4u);
  EXPECT_EQ(file->find_tensor("empty")->bytes, 0u);
  EXPECT_EQ(file->find_tensor("no_rows")->rows(), 0);
  EXPECT_EQ(file->find_tensor("no_rows")->cols(), 256);
  testing::read_everything(*file, bytes.span().data());
}

TEST(GgufHostile, types_known_but_never_computed_are_listed_and_unknown_ones_refused) {
  const auto typed = [](uint32_t type) {
    return verdict(GgufBytes(1, 0).tensor("w", {256}, type, 0).pad().raw(std::string(2048, 0)));
  };
  for (const GgmlType& type : ggml_types()) EXPECT_EQ(typed(type.id), "accepted") << type.name;
  EXPECT_EQ(typed(77), "bad: tensor \"w\" at byte 45: unknown ggml type 77");
  EXPECT_EQ(typed(31), "bad: tensor \"w\" at byte 45: unknown ggml type 31 (q4_0_4_4, withdrawn from ggml)");
  EXPECT_EQ(typed(0xFFFFFFFF), "bad: tensor \"w\" at byte 45: unknown ggml type 4294967295");
}

TEST(GgufHostile, duplicates_and_overlaps) {
  GgufBytes keys(0, 3);
  keys.key("a", GgufType::u8).u8(1).key("b", GgufType::u8).u8(1).key("a", GgufType::u8).u8(1);
  EXPECT_EQ(verdict(keys), "bad: key \"a\" at byte 60: a second key of this name; the first is at byte 32");

  GgufBytes tensors(2, 0);
  tensors.tensor("w", {1}, 0, 0).tensor("w", {1}, 0, 32).pad().raw(std::string(64, 0));
  EXPECT_EQ(verdict(tensors), "bad: tensor \"w\" at byte 65: a second tensor of this name; the first is at byte 32");

  GgufBytes overlap(2, 0);
  overlap.tensor("late", {8}, 0, 32).tensor("long", {9}, 0, 0).pad().raw(std::string(64, 0));
  EXPECT_EQ(
      verdict(overlap),
      "bad: tensor \"late\" at byte 32: its data at byte 128 overlaps that of tensor \"long\", 36 bytes at byte 96");
}

TEST(GgufHostile, names_in_errors_are_one_short_printable_line) {
  const std::string name = "a\n\x1b[31m\"" + std::string(5000, 'z');
  GgufBytes b(1, 0);
  b.tensor(name, {1}, 99, 0);
  const std::string got = verdict(b);
  EXPECT_NE(got.find("tensor \"a\\x0a\\x1b[31m\\x22zzz"), std::string::npos) << got;
  EXPECT_LT(got.size(), 200u);
}

}  // namespace
}  // namespace octalane
