// Additive codebooks decode as numpy does (make_additive_golden.py), bit for bit, from the tensors of CodeGEMM and
// AQLM.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/half.h"
#include "formats/golden.h"

namespace octalane {
namespace {

struct AdditiveGolden {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  std::array<std::vector<std::byte>, 3> parts;
  std::vector<float> values;

  StoredMatrix matrix() const { return {format, rows, cols, {parts[0].data(), parts[1].data(), parts[2].data()}}; }
};

const std::vector<AdditiveGolden>& goldens() {
  static const std::vector<AdditiveGolden> all = [] {
    const std::vector<std::byte> text = read_test_file("additive.json"), data = read_test_file("additive.golden");
    const auto* chars = reinterpret_cast<const char*>(text.data());
    std::vector<AdditiveGolden> read;
    for (const auto& entry : nlohmann::json::parse(chars, chars + text.size())) {
      AdditiveGolden golden{find_format(entry["format"].get<std::string>()), entry["rows"], entry["cols"], {}, {}};
      const std::byte* at = data.data() + entry["offset"].get<size_t>();
      for (size_t p = 0; p < golden.parts.size(); ++p) {
        const auto bytes = entry["bytes"][p].get<size_t>();
        golden.parts[p].assign(at, at + bytes);
        at += bytes;
      }
      golden.values.resize(static_cast<size_t>(golden.rows * golden.cols));
      std::memcpy(golden.values.data(), at, golden.values.size() * sizeof(float));
      read.push_back(std::move(golden));
    }
    return read;
  }();
  return all;
}

std::vector<float> decode(const StoredMatrix& stored) {
  const std::vector<float> codebooks = stored.codebooks();
  std::vector<float> values(static_cast<size_t>(stored.rows * stored.cols));
  Planes planes(stored.format->spec, stored.rows, stored.cols, codebooks.data());
  for (int64_t r = 0; r < stored.rows; ++r) {
    stored.to_planes(r, planes.row(r));
    decode_row(stored.format->spec, planes.row(r), stored.cols, values.data() + r * stored.cols);
  }
  return values;
}

class AdditiveDecode : public testing::TestWithParam<size_t> {
 protected:
  const AdditiveGolden& golden = goldens().at(GetParam());
  const Format& format = *golden.format;
  const AdditiveLayout& layout = *format.additive;

  bool matches(const AdditiveGolden& read) const {
    return first_difference(decode(read.matrix()), golden.values) == -1;
  }
};

TEST_P(AdditiveDecode, matches_numpy_bit_for_bit) {
  const std::vector<float> values = decode(golden.matrix());
  const int64_t at = first_difference(values, golden.values);
  EXPECT_EQ(at, -1) << "value " << at << ": " << values[static_cast<size_t>(at)] << ", numpy has "
                    << golden.values[static_cast<size_t>(at)];
}

TEST_P(AdditiveDecode, parts_have_the_sizes_that_files_have) {
  const std::vector<StoredPart> parts = stored_parts(format, golden.cols);
  ASSERT_EQ(parts.size(), golden.parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t bytes = parts[p].bytes * (parts[p].per_matrix ? 1 : golden.rows);
    EXPECT_EQ(bytes, static_cast<int64_t>(golden.parts[p].size())) << parts[p].suffix;
  }
}

TEST_P(AdditiveDecode, a_matrix_taken_out_gives_the_parts_again) {
  const AdditiveMatrix matrix = additive_matrix(golden.matrix());
  EXPECT_TRUE(check_additive(matrix));
  EXPECT_EQ(additive_parts(layout, matrix), golden.parts);
}

TEST_P(AdditiveDecode, every_bit_of_the_codes_is_one_bit_of_one_code) {
  const std::vector<uint8_t> codes = additive_matrix(golden.matrix()).codes;
  for (size_t bit = 0; bit < 8 * golden.parts[0].size(); ++bit) {
    AdditiveGolden flipped = golden;
    flipped.parts[0][bit / 8] ^= std::byte{1} << (bit % 8);
    const std::vector<uint8_t> read = additive_matrix(flipped.matrix()).codes;
    int changed = 0;
    for (size_t i = 0; i < codes.size(); ++i) changed += std::popcount(static_cast<unsigned>(codes[i] ^ read[i]));
    EXPECT_EQ(changed, 1) << "bit " << bit;
  }
}

/// Readers that get the order wrong: the comparison must catch every one.
TEST_P(AdditiveDecode, comparison_catches_words_read_from_their_high_byte) {
  AdditiveGolden wrong = golden;
  for (auto word = wrong.parts[0].begin(); word < wrong.parts[0].end(); word += 4) std::reverse(word, word + 4);
  EXPECT_FALSE(matches(wrong));
}

TEST_P(AdditiveDecode, comparison_catches_exchanged_codebooks) {
  if (layout.shape.books == 1) GTEST_SKIP() << "one codebook";
  AdditiveGolden wrong = golden;
  const auto half = static_cast<ptrdiff_t>(wrong.parts[1].size() / 2);
  std::rotate(wrong.parts[1].begin(), wrong.parts[1].begin() + half, wrong.parts[1].end());
  EXPECT_FALSE(matches(wrong));
}

TEST_P(AdditiveDecode, comparison_catches_groups_off_by_one) {
  if (layout.shape.group == 0) GTEST_SKIP() << "one scale a row";
  AdditiveGolden wrong = golden;
  std::rotate(wrong.parts[2].begin(), wrong.parts[2].begin() + 2 * golden.rows, wrong.parts[2].end());
  EXPECT_FALSE(matches(wrong));
}

TEST_P(AdditiveDecode, comparison_catches_rows_off_by_one) {
  for (const size_t p : {size_t{0}, size_t{2}}) {
    AdditiveGolden wrong = golden;
    const ptrdiff_t step = p == 2 ? 2 : layout.by_rows ? layout.shape.code_bytes(golden.cols) : 4;
    std::rotate(wrong.parts[p].begin(), wrong.parts[p].begin() + step, wrong.parts[p].end());
    EXPECT_FALSE(matches(wrong)) << kAdditiveParts[p];
  }
}

TEST_P(AdditiveDecode, codebooks_must_be_finite) {
  EXPECT_TRUE(golden.matrix().check());
  for (const uint16_t bits : {uint16_t{0x7C00}, uint16_t{0x7E00}}) {
    AdditiveGolden wrong = golden;
    std::memcpy(wrong.parts[1].data() + wrong.parts[1].size() - 2, &bits, 2);
    const Status status = wrong.matrix().check();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, testing::StartsWith("codebooks: wanted finite values, got "));
    EXPECT_FALSE(check_additive(additive_matrix(wrong.matrix())));
  }
}

TEST_P(AdditiveDecode, parts_must_be_there) {
  for (size_t p = 0; p < kAdditiveParts.size(); ++p) {
    StoredMatrix stored = golden.matrix();
    stored.parts[p] = nullptr;
    const Status status = stored.check();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, testing::HasSubstr(kAdditiveParts[p]));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AdditiveDecode, testing::Range<size_t>(0, goldens().size()), [](const auto& each) {
  std::string name(goldens().at(each.param).format->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(AdditiveTable, every_format_with_codebooks_has_a_golden_matrix) {
  size_t count = 0;
  for (const Format* format : formats()) {
    if (format->additive == nullptr) continue;
    ++count;
    const auto is_its = [&](const AdditiveGolden& golden) { return golden.format == format; };
    EXPECT_TRUE(std::any_of(goldens().begin(), goldens().end(), is_its)) << format->name;
    EXPECT_EQ(find_additive_format(*format->additive), format);
  }
  EXPECT_EQ(count, 18u);
}

TEST(AdditiveTable, two_codebooks_of_eight_take_15605760_bytes_at_14336_x_4096) {
  int64_t bytes = 0;
  for (const StoredPart& part : stored_parts(*find_format("additive-m2v8-g128"), 4096)) {
    bytes += part.bytes * (part.per_matrix ? 1 : 14336);
  }
  EXPECT_EQ(bytes, 15'605'760);
}

TEST(AdditiveTable, bits_per_weight_leave_out_what_a_matrix_or_a_row_has_once) {
  EXPECT_EQ(find_format("additive-m2v8-g128")->bits_per_weight(), 2.125);
  EXPECT_EQ(find_format("additive-m1v4-g32")->bits_per_weight(), 2.5);
  EXPECT_EQ(find_format("additive-m1v8-row")->bits_per_weight(), 1.0);
  EXPECT_EQ(find_format("aqlm-2x8")->bits_per_weight(), 2.0);
}

TEST(AdditiveTable, a_matrix_of_other_sizes_than_it_says_is_refused) {
  const AdditiveMatrix sound = additive_matrix(goldens().front().matrix());
  const auto refused = [&](auto change) {
    AdditiveMatrix wrong = sound;
    change(wrong);
    return !check_additive(wrong);
  };
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.codes.pop_back(); }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.codebooks.push_back(0); }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.scales.clear(); }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.cols = 144; }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.rows = 0; }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.shape.group = 48; }));
  EXPECT_TRUE(refused([](AdditiveMatrix& m) { m.shape.books = 3; }));
}

}  // namespace
}  // namespace octalane
