#include "weights/pack.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "core/half.h"

namespace octalane {
namespace {

constexpr ScaleSpec kFlat{ScaleType::f16, 32, 0, true};
constexpr ScaleSpec kNested{ScaleType::f16, 16, 256, true};

WeightSpec integer_spec(int bits, ScaleSpec scale) {
  return {{CodeMap::offset, static_cast<uint8_t>(bits), 0, {}}, scale};
}
WeightSpec float_spec(CodeMap map, int bits) { return {{map, static_cast<uint8_t>(bits), 0, {}}, {}}; }

/// A scale that the type can hold exactly.
float random_scale(ScaleType type, std::mt19937& random) {
  switch (type) {
    case ScaleType::f16: return f16_to_f32(static_cast<uint16_t>(random() % 0x7C00u));
    case ScaleType::bf16: return bf16_to_f32(static_cast<uint16_t>(random() % 0x7F80u));
    case ScaleType::e8m0: return e8m0_to_f32(static_cast<uint8_t>(random() % 255u));
    case ScaleType::e8m0_half: return e8m0_half_to_f32(static_cast<uint8_t>(random() % 256u));
    default: return static_cast<float>(random()) - 2e9f;
  }
}

int64_t codes_of(const WeightSpec& spec, int64_t cols) {
  return spec.code.is_codebook() ? spec.code.code_bytes(cols) : cols;
}

void fill_random(const PlaneRow& row, const WeightSpec& spec, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  if (spec.code.is_float()) {
    for (int64_t i = 0; i < cols * spec.code.bits / 8; ++i) row.elements[i] = static_cast<std::byte>(random());
    return;
  }
  for (int64_t c = 0; c < codes_of(spec, cols); ++c)
    row.codes[c] = static_cast<uint8_t>(random() % (1u << spec.code.bits));
  const int64_t groups = (cols + spec.scale.group - 1) / spec.scale.group;
  const int64_t scales = spec.scale.nested() ? cols / spec.scale.super : groups;
  for (int64_t i = 0; i < scales; ++i) {
    row.scale[i] = random_scale(spec.scale.type, random);
    if (row.bias != nullptr) row.bias[i] = random_scale(spec.scale.type, random);
  }
  for (int64_t i = 0; i < groups && row.sub_scale != nullptr; ++i) {
    row.sub_scale[i] = static_cast<int8_t>(random());
    if (row.sub_min != nullptr) row.sub_min[i] = static_cast<int8_t>(random());
  }
}

template <class T>
bool same(const T* a, const T* b, int64_t count) {
  return a == nullptr ? b == nullptr : std::memcmp(a, b, static_cast<size_t>(count) * sizeof(T)) == 0;
}

void expect_round_trip(const WeightSpec& spec, TileOrder order, int64_t rows, int64_t cols) {
  SCOPED_TRACE(fmt::format("bits {} group {} super {} rows {} cols {} order {}", spec.code.bits, spec.scale.group,
                           spec.scale.super, rows, cols, order.rows));
  const auto fill = [&](int64_t row, const PlaneRow& out) { fill_random(out, spec, cols, static_cast<uint32_t>(row)); };
  const std::vector<float> codebooks(spec.code.codebook_values(), 1.0f);
  const PackedWeights packed = PackedWeights::pack(spec, order, rows, cols, 2, fill, codebooks);
  const int64_t groups = spec.code.is_float() ? 0 : (cols + spec.scale.group - 1) / spec.scale.group;
  const int64_t scales = spec.scale.nested() ? cols / spec.scale.super : groups;
  for (int64_t r = 0; r < rows; ++r) {
    const Planes wanted(spec, 1, cols), got(spec, 1, cols);
    fill_random(wanted.row(0), spec, cols, static_cast<uint32_t>(r));
    unpack_row(packed.view(), r, got.row(0));
    const PlaneRow a = wanted.row(0), b = got.row(0);
    ASSERT_TRUE(same(a.codes, b.codes, codes_of(spec, cols))) << "row " << r;
    ASSERT_TRUE(same(a.elements, b.elements, cols * spec.code.bits / 8)) << "row " << r;
    ASSERT_TRUE(same(a.scale, b.scale, scales)) << "row " << r;
    ASSERT_TRUE(same(a.bias, b.bias, scales)) << "row " << r;
    ASSERT_TRUE(same(a.sub_scale, b.sub_scale, groups)) << "row " << r;
    ASSERT_TRUE(same(a.sub_min, b.sub_min, groups)) << "row " << r;
  }
}

TEST(Pack, every_code_width_comes_back_from_both_tile_orders) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const TileOrder order : {TileOrder{1}, TileOrder{16}}) {
      expect_round_trip(integer_spec(bits, kFlat), order, 33, 96);
      expect_round_trip(integer_spec(bits, kNested), order, 7, 512);
    }
  }
}

TEST(Pack, every_scale_type_and_group_comes_back) {
  for (const ScaleType type :
       {ScaleType::f16, ScaleType::bf16, ScaleType::f32, ScaleType::e8m0, ScaleType::e8m0_half}) {
    for (const int group : {16, 32, 64, 128}) {
      for (const bool bias : {false, true}) {
        const ScaleSpec scale{type, static_cast<int16_t>(group), 0, bias};
        expect_round_trip(integer_spec(4, scale), {16}, 31, 3 * group);
      }
    }
  }
}

TEST(Pack, floats_of_any_column_count_come_back) {
  for (const int64_t cols : {1, 31, 32, 33, 100}) {
    expect_round_trip(float_spec(CodeMap::f16, 16), {16}, 17, cols);
    expect_round_trip(float_spec(CodeMap::bf16, 16), {1}, 3, cols);
    expect_round_trip(float_spec(CodeMap::f32, 32), {16}, 5, cols);
  }
}

TEST(Pack, codes_of_codebooks_and_a_short_last_group_come_back) {
  for (const int books : {1, 2}) {
    for (const int vector : {4, 8}) {
      const WeightSpec spec{{.map = CodeMap::codebook,
                             .bits = 8,
                             .books = static_cast<uint8_t>(books),
                             .vector = static_cast<uint8_t>(vector)},
                            {ScaleType::f16, 128, 0, false}};
      for (const int64_t cols : {32, 128, 576}) {
        for (const TileOrder order : {TileOrder{1}, TileOrder{16}}) expect_round_trip(spec, order, 19, cols);
      }
    }
  }
}

TEST(Pack, stored_width_is_kept) {
  const auto bytes = [](const WeightSpec& spec) {
    return PackedWeights::pack(
               spec, {16}, 32, 512, 1, [](int64_t, const PlaneRow&) {}, std::vector<float>(spec.code.codebook_values()))
        .bytes();
  };
  EXPECT_EQ(bytes(integer_spec(4, {ScaleType::f16, 32, 0, false})), 32 * 512 / 32 * 18);     // Q4_0
  EXPECT_EQ(bytes(integer_spec(4, {ScaleType::f16, 32, 0, true})), 32 * 512 / 32 * 20);      // Q4_1
  EXPECT_EQ(bytes(integer_spec(8, {ScaleType::f16, 32, 0, false})), 32 * 512 / 32 * 34);     // Q8_0
  EXPECT_EQ(bytes(integer_spec(4, {ScaleType::f16, 32, 256, true})), 32 * 512 / 256 * 148);  // Q4_K: 144 in the file
  const CodeSpec m2v8{.map = CodeMap::codebook, .bits = 8, .books = 2, .vector = 8};
  EXPECT_EQ(bytes({m2v8, {ScaleType::f16, 128, 0, false}}), 32 * 512 / 128 * 34);             // beside the codebooks
  EXPECT_EQ(bytes(integer_spec(6, {ScaleType::f16, 16, 256, false})), 32 * 512 / 256 * 210);  // Q6_K
}

}  // namespace
}  // namespace octalane
