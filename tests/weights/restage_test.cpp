// Re-encoding: the bound of every weight, what is refused a scale, and the report.
#include "weights/restage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
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

}  // namespace
}  // namespace octalane
