// The formats of MLX decode as mlx.core.dequantize does, bit for bit, from parts that lie apart as MLX stores them.
#include <fmt/core.h>

#include "formats/mlx_golden.h"

namespace octalane {
namespace {

class MlxDecode : public testing::TestWithParam<size_t> {
 protected:
  static const std::vector<MlxGolden>& goldens() {
    static const std::vector<MlxGolden> all = read_mlx_goldens();
    return all;
  }
  const MlxGolden& golden = goldens().at(GetParam());
  const Format& format = *golden.format;

  bool matches(const MlxGolden& read) const { return first_difference(decode(read.matrix()), golden.values) == -1; }
};

std::string golden_name(const testing::TestParamInfo<size_t>& info) {
  static const std::vector<MlxGolden> all = read_mlx_goldens();
  std::string name = fmt::format("{}_{}", all.at(info.param).format->name, info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST_P(MlxDecode, matches_mlx_bit_for_bit) {
  const std::vector<float> values = decode(golden.matrix());
  const int64_t at = first_difference(values, golden.values);
  EXPECT_EQ(at, -1) << "value " << at << ": " << values[static_cast<size_t>(at)] << ", mlx has "
                    << golden.values[static_cast<size_t>(at)];
}

TEST_P(MlxDecode, blocks_of_a_row_taken_apart_are_the_parts_again) {
  MlxGolden again = golden;
  for (auto& part : again.parts) std::fill(part.begin(), part.end(), std::byte{0x5A});
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(golden.cols)));
  for (int64_t r = 0; r < golden.rows; ++r) {
    golden.matrix().read_row(r, blocks.data());
    std::vector<std::byte*> parts;
    for (size_t p = 0; p < again.parts.size(); ++p) {
      const FormatPart& part = format.parts[p];
      parts.push_back(again.parts[p].data() + (part.per_matrix ? 0 : r * golden.cols / format.block * part.bytes));
    }
    split_row(format, blocks.data(), golden.cols, parts);
  }
  EXPECT_EQ(again.parts, golden.parts);
}

TEST_P(MlxDecode, every_bit_of_every_part_changes_a_value) {
  for (size_t p = 0; p < golden.parts.size(); ++p) {
    const auto size = static_cast<size_t>(format.parts[p].bytes);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      MlxGolden flipped = golden;
      for (size_t at = bit / 8; at < flipped.parts[p].size(); at += size) {
        flipped.parts[p][at] ^= std::byte{1} << (bit % 8);
      }
      EXPECT_FALSE(matches(flipped)) << "bit " << bit << " of " << format.parts[p].suffix << " is not read";
    }
  }
}

/// Readers that get the packing wrong: the comparison must catch every one.
TEST_P(MlxDecode, comparison_catches_swapped_nibbles) {
  MlxGolden wrong = golden;
  for (std::byte& byte : wrong.parts[0]) byte = byte << 4 | byte >> 4;
  EXPECT_FALSE(matches(wrong));
}

TEST_P(MlxDecode, comparison_catches_groups_off_by_one) {
  for (size_t p = 0; p < golden.parts.size(); ++p) {
    if (format.parts[p].per_matrix) continue;
    MlxGolden wrong = golden;
    std::rotate(wrong.parts[p].begin(), wrong.parts[p].begin() + format.parts[p].bytes, wrong.parts[p].end());
    EXPECT_FALSE(matches(wrong)) << format.parts[p].suffix;
  }
}

TEST_P(MlxDecode, comparison_catches_scales_read_without_their_sign) {
  if (format.spec.scale.type == ScaleType::e8m0 || format.name == "mlx-mxfp4") GTEST_SKIP() << "E8M0 has no sign";
  MlxGolden wrong = golden;
  const auto size = static_cast<size_t>(format.parts[1].bytes);
  for (size_t at = size - 1; at < wrong.parts[1].size(); at += size) wrong.parts[1][at] &= std::byte{0x7F};
  EXPECT_FALSE(matches(wrong));
}

TEST_P(MlxDecode, comparison_catches_scales_and_biases_exchanged) {
  if (!format.spec.scale.has_bias) GTEST_SKIP() << "no biases";
  MlxGolden wrong = golden;
  std::swap(wrong.parts[1], wrong.parts[2]);
  EXPECT_FALSE(matches(wrong));
}

INSTANTIATE_TEST_SUITE_P(Formats, MlxDecode, testing::Range<size_t>(0, read_mlx_goldens().size()), golden_name);

TEST(MlxTable, every_format_of_several_parts_has_golden_matrices) {
  const std::vector<MlxGolden> goldens = read_mlx_goldens();
  for (const Format* format : formats()) {
    if (format->parts.empty()) continue;
    const auto is_its = [&](const MlxGolden& golden) { return golden.format == format; };
    EXPECT_TRUE(std::any_of(goldens.begin(), goldens.end(), is_its)) << format->name;
  }
}

TEST(MlxTable, parts_cover_a_block_once) {
  for (const Format* format : formats()) {
    if (format->parts.empty()) continue;
    int covered = 0;
    for (const FormatPart& part : format->parts) {
      EXPECT_EQ(part.offset, covered) << format->name << " " << part.suffix;
      covered += part.bytes;
    }
    EXPECT_EQ(covered, format->block_bytes) << format->name;
  }
}

}  // namespace
}  // namespace octalane
