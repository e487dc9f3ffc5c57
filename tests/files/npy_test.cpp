#include "files/npy.h"

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "files/files_testing.h"

namespace octalane {
namespace {

using nlohmann::json;
using testing::ExactBytes;
using testing::golden;
using testing::TemporaryFolder;

json expected() { return json::parse(testing::read_bytes(golden("expected.json")))["npy"]; }

std::string verdict(std::string_view text) {
  const ExactBytes bytes(text);
  const auto matrix = parse_npy(bytes.span(), "bad");
  return matrix ? "accepted" : matrix.error().message;
}

/// Version 1 with this dictionary and this many bytes of values.
std::string npy(const std::string& dictionary, size_t value_bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(dictionary.size() & 255);
  text += static_cast<char>(dictionary.size() >> 8);
  return text + dictionary + std::string(value_bytes, '\0');
}

/// The same with a shape.
std::string shaped(const std::string& shape, size_t value_bytes) {
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", value_bytes);
}

TEST(NpyGolden, every_version_and_order_reads_as_numpy_reads_it) {
  const json files = expected()["read"];
  ASSERT_EQ(files.size(), 9u);
  for (const auto& [name, row] : files.items()) {
    const auto matrix = read_npy(golden(name));
    ASSERT_TRUE(matrix) << matrix.error().message;
    EXPECT_EQ(matrix->rows, row["rows"]) << name;
    EXPECT_EQ(matrix->cols, row["cols"]) << name;
    std::vector<uint32_t> bits;
    for (const float value : matrix->values) bits.push_back(std::bit_cast<uint32_t>(value));
    EXPECT_EQ(bits, row["bits"].get<std::vector<uint32_t>>()) << name;
  }
}

TEST(NpyGolden, other_types_and_dimensions_are_refused) {
  const json files = expected()["refused"];
  ASSERT_EQ(files.size(), 6u);
  for (const auto& name : files) {
    const auto matrix = read_npy(golden(name));
    ASSERT_FALSE(matrix) << name;
    EXPECT_TRUE(matrix.error().message.starts_with(golden(name) + ": ")) << matrix.error().message;
    EXPECT_NE(matrix.error().message.find("byte "), std::string::npos) << matrix.error().message;
  }
}

TEST(NpyGolden, what_is_written_is_what_numpy_writes) {
  const TemporaryFolder folder;
  for (const std::string name : {"c_order.v1.npy", "no_rows.v1.npy", "no_columns.v1.npy", "special.v1.npy"}) {
    const auto matrix = read_npy(golden(name));
    ASSERT_TRUE(matrix) << matrix.error().message;
    const Status written = write_npy(folder / name, matrix->view());
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_TRUE(testing::read_bytes(folder / name) == testing::read_bytes(golden(name))) << name;
  }
}

TEST(Npy, strided_views_are_written_as_their_elements) {
  const TemporaryFolder folder;
  const auto matrix = read_npy(golden("c_order.v1.npy"));
  ASSERT_TRUE(matrix);
  const MatrixView<const float> transposed{matrix->values.data(), 4, 3, 1, 4};
  ASSERT_TRUE(write_npy(folder / "t.npy", transposed));
  const auto back = read_npy(folder / "t.npy");
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->rows, 4);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(back->view()(r, c), matrix->view()(c, r));
  }
}

TEST(Npy, the_header_may_come_in_any_order_and_quotes) {
  EXPECT_EQ(verdict(npy("{\"shape\":(2L,),\"fortran_order\":True,\"descr\":\"<f4\"}\n", 8)), "accepted");
  EXPECT_EQ(verdict(shaped("(2, 3)", 24)), "accepted");
  EXPECT_EQ(verdict(shaped("(2,3,)", 24)), "accepted");
}

TEST(NpyHostile, every_truncation_is_refused) {
  for (const std::string name : {"c_order.v1.npy", "fortran.v3.npy"}) {
    const std::string whole = testing::read_bytes(golden(name));
    ASSERT_EQ(verdict(whole), "accepted");
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string got = verdict(std::string_view(whole).substr(0, size));
      ASSERT_TRUE(got.starts_with("bad: ")) << size << ": " << got;
      ASSERT_NE(got.find("byte "), std::string::npos) << got;
    }
    EXPECT_EQ(verdict(whole + "x"), "bad: byte 128: 3 x 4 values: wanted 48 bytes, got 49");
  }
}

TEST(NpyHostile, every_changed_byte_is_survived) {
  size_t accepted = 0, refused = 0;
  for (const std::string name : {"c_order.v1.npy", "fortran.v3.npy", "vector.v1.npy"}) {
    const std::string whole = testing::read_bytes(golden(name));
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {0x01, 0x02, 0x10, 0x80, 0xFF}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ change);
        (verdict(changed) == "accepted" ? accepted : refused) += 1;
      }
    }
  }
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(refused, 500u);
}

TEST(NpyHostile, headers_that_lie) {
  EXPECT_EQ(verdict("PK\n"), "bad: byte 0: wanted the magic string of .npy files, got \"PK\\x0a\"");
  EXPECT_EQ(verdict(std::string("\x93NUMPY\x04\x00\x76\x00", 10)), "bad: byte 6: wanted .npy version 1, 2 or 3, got 4");
  EXPECT_EQ(verdict(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12)),
            "bad: byte 8: a header of 4294967295 bytes, the file has 0 left");
  EXPECT_EQ(verdict(shaped("(-1, 2)", 0)), "bad: byte 61: not a header of a plain array");
  EXPECT_EQ(verdict(shaped("(99999999999999999999,)", 0)), "bad: byte 61: not a header of a plain array");
  EXPECT_EQ(verdict(shaped("(4294967296, 4294967296)", 0)),
            "bad: header at byte 10: a shape of 4294967296 x 4294967296 overflows");
  EXPECT_EQ(verdict(shaped("(4611686018427387904, 0)", 0)), "accepted");
  EXPECT_EQ(verdict(shaped("(1000000000000, 3)", 16)),
            "bad: byte 81: 1000000000000 x 3 values: wanted 12000000000000 bytes, got 16");
  EXPECT_EQ(verdict(npy("{'descr': '<f4', 'fortran_order': False}", 0)), "bad: byte 10: the header lacks shape");
  EXPECT_EQ(verdict(npy("{'descr': '<f4', 'descr': '<f4'}", 0)), "bad: byte 35: not a header of a plain array");
  EXPECT_EQ(verdict(npy("{'descr': '<f4', 'more': 1}", 0)), "bad: byte 34: not a header of a plain array");
  EXPECT_EQ(verdict(npy("", 0)), "bad: byte 10: not a header of a plain array");
  EXPECT_EQ(verdict(npy("{}", 0)), "bad: byte 10: the header lacks descr");
  EXPECT_EQ(verdict(npy("{} {}", 0)), "bad: byte 13: not a header of a plain array");
}

TEST(Npy, a_path_that_cannot_be_written_is_told) {
  const TemporaryFolder folder;
  const float one = 1;
  const Status written = write_npy(folder / "no/x.npy", dense_view(&one, 1, 1));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, folder / "no/x.npy" + ": cannot write: No such file or directory");
}

}  // namespace
}  // namespace octalane
