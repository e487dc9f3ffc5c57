// Re-encoding: the bound of every weight, what is refused a scale, and the report.
#include "weights/restage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/planes.h"
#include "core/restage.h"
#include "weights/pack.h"

namespace octalane {
namespace {

const WeightSpec kAffine{{.map = CodeMap::offset, .bits = 4}, {.type = ScaleType::f32, .group = 32, .has_bias = true}};

/// Weights of 20 rows in tiles of 16: random codes, scales of both signs.
PackedWeights random_weights(int64_t cols, uint32_t seed, float first_scale = 1.0f) {
  return PackedWeights::pack(kAffine, {16}, 20, cols, 1, [&](int64_t row, const PlaneRow& out) {
    std::mt19937 random(seed + static_cast<uint32_t>(row));
    std::normal_distribution<float> normal;
    for (int64_t c = 0; c < cols; ++c) out.codes[c] = static_cast<uint8_t>(random() % 16u);
    for (int64_t g = 0; g < cols / 32; ++g) {
      out.scale[g] = normal(random);
      out.bias[g] = -7.5f * out.scale[g] + 0.3f * normal(random);
    }
    if (row == 0) out.scale[0] = first_scale;
  });
}

std::vector<float> decoded_row(const PackedView& w, int64_t row) {
  const Planes planes(w.spec, 1, w.cols);
  unpack_row(w, row, planes.row(0));
  std::vector<float> out(static_cast<size_t>(w.cols));
  decode_row(w.spec, planes.row(0), w.cols, out.data());
  return out;
}

TEST(Restage, every_weight_is_within_half_a_step_and_the_rounding_of_its_factors) {
  for (const StagedType type : {StagedType::s8_row, StagedType::s8_block}) {
    const PackedWeights weights = random_weights(576, 1);
    const Restaged made = restage(weights.view(), type, 2);
    ASSERT_EQ(made.units, type == StagedType::s8_row ? 1 : 3);
    std::vector<double> staged(576);
    double error = 0, square = 0;
    for (int64_t n = 0; n < 20; ++n) {
      restaged_row(weights.view(), made, n, staged.data());
      const std::vector<float> wanted = decoded_row(weights.view(), n);
      for (int64_t k = 0; k < 576; ++k) {
        const int64_t unit = made.units == 1 ? 0 : k / 256;
        const double s8 = made.scales[(n / 16 * made.units + unit) * 16 + n % 16];
        const double w = wanted[static_cast<size_t>(k)], got = staged[static_cast<size_t>(k)];
        // Level at most 15; the factors go through two fp32 roundings of values below 2^16.
        ASSERT_LE(std::fabs(got - w), s8 * (0.5 + 16 / 512.0 + 0.01));
        ASSERT_LE(std::fabs(got), 127.5 * s8);
        error += (got - w) * (got - w);
        square += w * w;
      }
    }
    EXPECT_NEAR(made.relative_error, std::sqrt(error / square), 1e-12);
    EXPECT_GT(made.relative_error, 1e-3);
    EXPECT_LT(made.relative_error, 2e-2);
  }
}

TEST(Restage, a_scale_per_block_loses_less_than_a_scale_per_row) {
  const PackedWeights weights = random_weights(1024, 2);
  EXPECT_LT(restage(weights.view(), StagedType::s8_block, 1).relative_error,
            restage(weights.view(), StagedType::s8_row, 1).relative_error);
}

TEST(Restage, the_same_for_any_number_of_threads) {
  const PackedWeights weights = random_weights(512, 3);
  const Restaged one = restage(weights.view(), StagedType::s8_row, 1),
                 four = restage(weights.view(), StagedType::s8_row, 4);
  EXPECT_EQ(one.relative_error, four.relative_error);
  for (int64_t i = 0; i < one.scales.size(); ++i) EXPECT_EQ(one.scales[i], four.scales[i]);
}

TEST(Restage, rows_that_hold_infinities_get_nan_and_padding_gets_zero) {
  const PackedWeights weights = random_weights(64, 4, std::numeric_limits<float>::infinity());
  const Restaged made = restage(weights.view(), StagedType::s8_row, 1);
  EXPECT_TRUE(std::isnan(made.scales[0]));
  EXPECT_GT(made.scales[1], 0.0f);
  for (int64_t row = 20; row < 32; ++row) EXPECT_EQ(made.scales[row], 0.0f);
}

TEST(Restage, codes_round_to_nearest_at_the_ends_of_the_range) {
  EXPECT_EQ(restage_code(1, 127 * 256, 0), 127);
  EXPECT_EQ(restage_code(1, -127 * 256, 0), -127);
  EXPECT_EQ(restage_code(0, 0, 127), 0);
  EXPECT_EQ(restage_code(0, 0, 128), 1);
  // A factor beyond 16 bits wraps, and comes back with the bias: 2 * 254 * 256 - 127 * 256.
  EXPECT_EQ(restage_code(1, static_cast<int16_t>(254 * 256), static_cast<int16_t>(-127 * 256)), 127);
  EXPECT_EQ(restage_fixed(1e30f, 1e30f), 0);
  EXPECT_EQ(restage_fixed(0.0f, std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(restage_factor(0.0f), 0.0f);
}

/// One row of groups of affine 4-bit weights; group g spans [low[g], high[g]].
PackedWeights spanning(const std::vector<std::pair<float, float>>& spans) {
  const auto cols = static_cast<int64_t>(32 * spans.size());
  return PackedWeights::pack(kAffine, {16}, 1, cols, 1, [&](int64_t, const PlaneRow& out) {
    for (int64_t c = 0; c < cols; ++c) out.codes[c] = static_cast<uint8_t>(c % 16);
    for (size_t g = 0; g < spans.size(); ++g) {
      out.scale[g] = (spans[g].second - spans[g].first) / 15;
      out.bias[g] = spans[g].first;
    }
  });
}

TEST(Restage, groups_of_one_sign_far_from_zero_are_counted_and_make_weights_unfit) {
  for (const StagedType type : {StagedType::s8_row, StagedType::s8_xblock, StagedType::s8_block}) {
    const auto count = [&](std::vector<std::pair<float, float>> spans) {
      const PackedWeights weights = spanning(spans);
      const Restaged made = restage(weights.view(), type, 1);
      EXPECT_EQ(why_unfit(kAffine, made).empty(), made.same_sign_groups == 0);
      return made.same_sign_groups;
    };
    EXPECT_EQ(count({{-1, 1}, {10.0f, 10.1f}, {-10.1f, -10.0f}, {-3, 2}}), 2);
    EXPECT_EQ(count({{10, 10}}), 1) << "a group of one value has no range at all";
    EXPECT_EQ(count({{0, 0}, {0, 1}, {-1, 0}, {0.5f, 1}}), 0) << "one sign, but not far from zero: 1 / 0.5 < 2.54";
    EXPECT_EQ(count({{0.62f, 1}}), 1) << "1 / 0.38 > 2.54";
    EXPECT_EQ(count({{0.59f, 1}}), 0) << "1 / 0.41 < 2.54";
    EXPECT_EQ(count({{-1, 1}, {0.1f, 0.101f}}), 0) << "lost to the largest weight of the row, not to its sign";
  }
  const PackedWeights narrow = spanning({{10.0f, 10.1f}});
  const std::string why = why_unfit(kAffine, restage(narrow.view(), StagedType::s8_row, 1));
  EXPECT_EQ(why, "1 groups of weights share a sign far from zero and would lose more than 1 % of their range");
}

TEST(Restage, ordinary_weights_are_fit_even_beside_an_outlier) {
  for (const StagedType type : {StagedType::s8_row, StagedType::s8_block}) {
    const PackedWeights gaussian = random_weights(4096, 5), outlier = random_weights(4096, 6, 100.0f);
    for (const PackedWeights* weights : {&gaussian, &outlier}) {
      EXPECT_EQ(why_unfit(kAffine, restage(weights->view(), type, 1)), "");
    }
  }
}

const CodeSpec kE2m1{
    .map = CodeMap::table, .bits = 4, .table = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
const CodeSpec kE4m3{.map = CodeMap::e4m3, .bits = 8};

/// Two rows in groups of 32 of every code (but NaN); in the first, groups have scales of 2^exponents.
PackedWeights with_exponents(const CodeSpec& code, const std::vector<int>& exponents) {
  const WeightSpec spec{code, {.type = ScaleType::e8m0, .group = 32}};
  const auto cols = static_cast<int64_t>(32 * exponents.size());
  return PackedWeights::pack(spec, {16}, 2, cols, 1, [&](int64_t row, const PlaneRow& out) {
    for (int64_t c = 0; c < cols; ++c) {
      out.codes[c] = static_cast<uint8_t>(code.bits == 4 ? c % 16 : c % 32 * 4);
      if (row == 1) out.codes[c] = 0;
    }
    for (size_t g = 0; g < exponents.size(); ++g) out.scale[g] = std::ldexp(1.0f, exponents[g]);
  });
}

TEST(RestageE4m3, e2m1_is_exact_while_scales_of_a_row_are_within_2_to_the_14) {
  for (const int top : {0, 100, -113}) {
    const PackedWeights near = with_exponents(kE2m1, {top - 14, top, top - 3}),
                        far = with_exponents(kE2m1, {top - 15 + (top < 0 ? 1 : 0), top + (top < 0 ? 1 : 0), top - 3});
    const Restaged exact = restage(near.view(), StagedType::f8_row, 1);
    EXPECT_EQ(exact.inexact_weights, 0);
    EXPECT_EQ(exact.relative_error, 0.0);
    EXPECT_EQ(exact.spread, 14);
    EXPECT_EQ(exact.scales[0], std::ldexp(1.0f, top - 5)) << "12 * 2^5 = 384 <= 448";
    EXPECT_EQ(exact.scales[1], 0.0f) << "a row of zeros";
    EXPECT_EQ(why_unfit(near.view().spec, exact), "");
    std::vector<double> staged(96);
    restaged_row(near.view(), exact, 0, staged.data());
    const std::vector<float> wanted = decoded_row(near.view(), 0);
    for (size_t k = 0; k < 96; ++k) ASSERT_EQ(staged[k], wanted[k]);

    const Restaged lossy = restage(far.view(), StagedType::f8_row, 1);
    EXPECT_EQ(lossy.inexact_weights, 8) << "+-1 and +-3 become 0 and 4, in both halves of the group";
    EXPECT_GT(lossy.relative_error, 0.0);
    EXPECT_EQ(lossy.spread, 15);
    EXPECT_EQ(why_unfit(far.view().spec, lossy),
              "8 weights do not move exactly to one power of two per row: scales of a row are 2^15 apart");
  }
}

TEST(RestageE4m3, a_group_of_zeros_has_no_say_in_the_scale_of_its_row) {
  const WeightSpec spec{kE2m1, {.type = ScaleType::e8m0_half, .group = 32}};
  const PackedWeights weights = PackedWeights::pack(spec, {16}, 1, 64, 1, [&](int64_t, const PlaneRow& out) {
    for (int64_t c = 0; c < 64; ++c) out.codes[c] = static_cast<uint8_t>(c < 32 ? 8 * (c % 2) : c % 16);
    out.scale[0] = 0x1p90f;
    out.scale[1] = 0x1p-120f;
  });
  const Restaged made = restage(weights.view(), StagedType::f8_row, 1);
  EXPECT_EQ(made.scales[0], 0x1p-125f);
  EXPECT_EQ(made.relative_error, 0.0);
  EXPECT_EQ(made.spread, 0);
}

TEST(RestageE4m3, e4m3_loses_at_most_half_a_subnormal_step_of_the_unit) {
  const PackedWeights weights = with_exponents(kE4m3, {0, -3, -12, -20});
  const Restaged made = restage(weights.view(), StagedType::f8_row, 1);
  EXPECT_EQ(made.scales[0], 1.0f);
  EXPECT_EQ(made.spread, 20);
  EXPECT_GT(made.inexact_weights, 0);
  EXPECT_EQ(why_unfit(weights.view().spec, made), "");
  std::vector<double> staged(128);
  restaged_row(weights.view(), made, 0, staged.data());
  const std::vector<float> wanted = decoded_row(weights.view(), 0);
  for (size_t k = 0; k < 128; ++k) {
    ASSERT_LE(std::fabs(staged[k] - wanted[k]), 0x1p-10) << k;
    ASSERT_TRUE(staged[k] == wanted[k] || std::fabs(wanted[k]) < 0x1p-6f) << k;
  }
}

TEST(RestageE4m3, a_nan_code_and_a_nan_scale_spoil_their_rows) {
  const WeightSpec spec{kE4m3, {.type = ScaleType::e8m0, .group = 32}};
  const PackedWeights weights = PackedWeights::pack(spec, {16}, 3, 32, 1, [&](int64_t row, const PlaneRow& out) {
    for (int64_t c = 0; c < 32; ++c) out.codes[c] = row == 0 && c == 9 ? 0xFF : 0x38;
    out.scale[0] = row == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
  });
  const Restaged made = restage(weights.view(), StagedType::f8_row, 1);
  EXPECT_TRUE(std::isnan(made.scales[0]));
  EXPECT_TRUE(std::isnan(made.scales[1]));
  EXPECT_EQ(made.scales[2], 1.0f);
}

}  // namespace
}  // namespace octalane
