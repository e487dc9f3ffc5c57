// Every format of GGUF decodes as the PyPI package `gguf` does, bit for bit, and no bit of a block goes unread.
#include <algorithm>

#include "core/half.h"
#include "formats/golden.h"

namespace octalane {
namespace {

class Decode : public testing::TestWithParam<const Format*> {};
class DecodeScaled : public Decode {};  // formats with codes and scales

std::vector<const Format*> scaled_formats() {
  std::vector<const Format*> scaled;
  for (const Format* format : gguf_formats()) {
    if (!format->spec.code.is_float()) scaled.push_back(format);
  }
  return scaled;
}

TEST_P(Decode, matches_gguf_bit_for_bit) {
  const Golden golden = read_golden(*GetParam());
  ASSERT_GE(golden.values.size(), 256u);
  const std::vector<float> values = decode(*GetParam(), golden.blocks);
  ASSERT_EQ(values.size(), golden.values.size());
  const int64_t at = first_difference(values, golden.values);
  EXPECT_EQ(at, -1) << "value " << at << ": " << values[static_cast<size_t>(at)] << ", gguf has "
                    << golden.values[static_cast<size_t>(at)];
}

TEST_P(Decode, golden_blocks_cover_extreme_scales) {
  const Golden golden = read_golden(*GetParam());
  const auto any = [&](auto condition) { return std::any_of(golden.values.begin(), golden.values.end(), condition); };
  EXPECT_TRUE(any([](float v) { return v < 0; }));
  EXPECT_TRUE(any([](float v) { return v == 0; }));
  EXPECT_TRUE(any([](float v) { return v != 0 && std::fabs(v) < 1e-5f; }));
  EXPECT_TRUE(any([](float v) { return std::fabs(v) > 60000.0f; }));
  if (GetParam()->spec.scale.type == ScaleType::f16) {
    EXPECT_TRUE(any([](float v) { return std::isnan(v); }));
    EXPECT_TRUE(any([](float v) { return std::isinf(v); }));
  }
}

TEST_P(Decode, every_bit_of_a_block_changes_a_value) {
  const Format& format = *GetParam();
  const Golden golden = read_golden(format);
  const size_t size = static_cast<size_t>(format.block_bytes);
  for (size_t bit = 0; bit < 8 * size; ++bit) {
    std::vector<std::byte> flipped = golden.blocks;
    for (size_t at = bit / 8; at < flipped.size(); at += size) flipped[at] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(first_difference(decode(format, flipped), golden.values), -1)
        << "bit " << bit % 8 << " of byte " << bit / 8 << " is not read";
  }
}

TEST_P(Decode, comparison_catches_a_swapped_nibble) {
  const Format& format = *GetParam();
  const Golden golden = read_golden(format);
  const size_t size = static_cast<size_t>(format.block_bytes);
  for (size_t byte = 0; byte < size; ++byte) {
    std::vector<std::byte> wrong = golden.blocks;
    for (size_t at = byte; at < wrong.size(); at += size) wrong[at] = wrong[at] << 4 | wrong[at] >> 4;
    EXPECT_NE(first_difference(decode(format, wrong), golden.values), -1) << "byte " << byte;
  }
}

TEST_P(DecodeScaled, comparison_catches_a_shifted_scale) {
  const Format& format = *GetParam();
  const Golden golden = read_golden(format);
  const int64_t cols = static_cast<int64_t>(golden.values.size());
  const int64_t groups = cols / format.spec.scale.group;
  const auto decode_with = [&](auto corrupt) {
    Planes planes(format.spec, 1, cols);
    PlaneRow row = planes.row(0);
    format.to_planes(golden.blocks.data(), cols, row);
    corrupt(row);
    std::vector<float> values(golden.values.size());
    decode_row(format.spec, row, cols, values.data());
    return values;
  };
  const bool nested = format.spec.scale.nested();
  const int64_t scales = nested ? cols / format.spec.scale.super : groups;
  const auto shifted = [](auto* plane, int64_t count) { std::rotate(plane, plane + 1, plane + count); };
  EXPECT_EQ(first_difference(decode_with([](PlaneRow&) {}), golden.values), -1);
  EXPECT_NE(first_difference(decode_with([&](PlaneRow& row) { shifted(row.scale, scales); }), golden.values), -1);
  EXPECT_NE(first_difference(decode_with([&](PlaneRow& row) { row.scale[0] *= 1.001f; }), golden.values), -1);
  if (nested) {
    EXPECT_NE(first_difference(decode_with([&](PlaneRow& row) { shifted(row.sub_scale, groups); }), golden.values), -1);
  }
  if (format.spec.scale.has_bias) {
    EXPECT_NE(first_difference(decode_with([&](PlaneRow& row) { shifted(row.bias, scales); }), golden.values), -1);
  }
}

TEST_P(DecodeScaled, codes_stay_inside_their_width) {
  const Format& format = *GetParam();
  const Golden golden = read_golden(format);
  const int64_t cols = static_cast<int64_t>(golden.values.size());
  Planes planes(format.spec, 1, cols);
  const PlaneRow row = planes.row(0);
  format.to_planes(golden.blocks.data(), cols, row);
  EXPECT_EQ(*std::max_element(row.codes, row.codes + cols), (1 << format.spec.code.bits) - 1);
}

TEST_P(Decode, reads_and_writes_exactly_its_row) {
  const Format& format = *GetParam();
  const Golden golden = read_golden(format);
  // One block from an odd address; the canary after the planes of the row is the first block of the next row.
  std::vector<std::byte> odd(static_cast<size_t>(format.block_bytes) + 1);
  std::copy_n(golden.blocks.begin(), format.block_bytes, odd.begin() + 1);
  Planes planes(format.spec, 2, format.block);
  format.to_planes(odd.data() + 1, format.block, planes.row(0));
  std::vector<float> values(static_cast<size_t>(format.block));
  decode_row(format.spec, planes.row(0), format.block, values.data());
  EXPECT_EQ(first_difference(values, {golden.values.begin(), golden.values.begin() + format.block}), -1);
  decode_row(format.spec, planes.row(1), format.block, values.data());
  const float untouched = 0.0f * static_cast<float>(format.spec.code.is_float() ? 0 : format.spec.code.level(0));
  for (const float value : values) EXPECT_EQ(value, untouched);
}

INSTANTIATE_TEST_SUITE_P(Formats, Decode, testing::ValuesIn(gguf_formats()), name_of);
INSTANTIATE_TEST_SUITE_P(Formats, DecodeScaled, testing::ValuesIn(scaled_formats()), name_of);

}  // namespace
}  // namespace octalane
