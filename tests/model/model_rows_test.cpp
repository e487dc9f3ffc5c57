// The maths of single rows against fp64.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "core/half.h"
#include "core/row_math.h"
#include "model/rope.h"

namespace octalane {
namespace {

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

TEST(Rows, ExpIsWithinTwoUlpOfFp64) {
  double worst = 0;
  for (float x = -87.0f; x <= 88.0f; x += 0.000917f) {
    const double wanted = std::exp(double{x});
    const double ulp = std::ldexp(1.0, std::ilogb(wanted) - 23);
    worst = std::max(worst, std::abs(double{exp_f32(x)} - wanted) / ulp);
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_LT(exp_f32(-std::numeric_limits<float>::infinity()), 1e-37f);
  EXPECT_GT(exp_f32(std::numeric_limits<float>::infinity()), 1e38f);
}

TEST(Rows, RmsNormIsFp64RoundedForEveryLength) {
  for (const int64_t n : {1, 7, 8, 9, 64, 576, 1001}) {
    const std::vector<float> x = normal(static_cast<size_t>(n), 1), w = normal(static_cast<size_t>(n), 2);
    std::vector<float> out(x.size());
    rms_norm(x.data(), w.data(), 1e-5f, n, out.data());
    double sum = 0;
    for (const float value : x) sum += double{value} * double{value};
    for (size_t i = 0; i < x.size(); ++i) {
      const double wanted = double{x[i]} / std::sqrt(sum / static_cast<double>(n) + double{1e-5f}) * double{w[i]};
      EXPECT_NEAR(out[i], wanted, 3 * 0x1p-24 * std::abs(wanted));  // three fp32 roundings
    }
    std::vector<float> in_place = x;
    rms_norm(in_place.data(), w.data(), 1e-5f, n, in_place.data());
    EXPECT_EQ(in_place, out);
  }
}

TEST(Rows, RmsNormOfZerosIsZeroAndOfHugeValuesFinite) {
  const std::vector<float> ones(64, 1.0f);
  std::vector<float> x(64, 0.0f);
  rms_norm(x.data(), ones.data(), 1e-5f, 64, x.data());
  for (const float value : x) EXPECT_EQ(value, 0.0f);
  x.assign(64, 1e30f);  // the squares are beyond fp32
  rms_norm(x.data(), ones.data(), 1e-5f, 64, x.data());
  for (const float value : x) EXPECT_NEAR(value, 1.0f, 1e-6f);
}

TEST(Rows, SiluTimesUpIsFp64ToAFewRoundings) {
  std::vector<float> gate = normal(1001, 3), up = normal(1001, 4);
  gate[0] = 0.0f, gate[1] = -200.0f, gate[2] = 200.0f;
  const std::vector<float> z = gate;
  silu_multiply(gate.data(), up.data(), 1001);
  for (size_t i = 0; i < z.size(); ++i) {
    const double wanted = double{z[i]} / (1 + std::exp(-double{z[i]})) * double{up[i]};
    EXPECT_NEAR(gate[i], wanted, 6 * 0x1p-24 * std::abs(wanted) + 1e-35) << z[i];
  }
}

TEST(Rows, HalvesAreStoredRoundedToNearest) {
  const std::vector<float> x = {0.0f, 1.0f, 1.0f + 0x1p-11f, 65504.0f, 1e6f, -2.5f, 0x1p-24f};
  std::vector<uint16_t> halves(x.size());
  store_halves(x.data(), static_cast<int64_t>(x.size()), halves.data(), 1);
  const std::vector<uint16_t> wanted = {0x0000, 0x3C00, 0x3C00, 0x7BFF, 0x7C00, 0xC100, 0x0001};
  EXPECT_EQ(halves, wanted);
}

RopeConfig rope_config(RopePairs pairs, int64_t dimensions) {
  RopeConfig config;
  config.pairs = pairs;
  config.dimensions = dimensions;
  return config;
}

std::vector<float> turned(const Rope& rope, int64_t position, std::vector<float> head) {
  std::vector<float> c(static_cast<size_t>(rope.pairs())), s(c.size());
  rope.turns(position, c.data(), s.data());
  rope.rotate(c.data(), s.data(), head.data());
  return head;
}

TEST(Rope, TurnsTheFirstPairByThePositionInRadians) {
  const double angle = 3;
  const std::vector<float> adjacent =
      turned(Rope(rope_config(RopePairs::adjacent, 4), {}), 3, {1.0f, 0.0f, 0.0f, 0.0f, 5.0f});
  EXPECT_FLOAT_EQ(adjacent[0], static_cast<float>(std::cos(angle)));
  EXPECT_FLOAT_EQ(adjacent[1], static_cast<float>(std::sin(angle)));
  EXPECT_EQ(adjacent[4], 5.0f);  // beyond the rotary dimensions
  const std::vector<float> halves =
      turned(Rope(rope_config(RopePairs::halves, 4), {}), 3, {1.0f, 0.0f, 0.0f, 0.0f, 5.0f});
  EXPECT_FLOAT_EQ(halves[0], static_cast<float>(std::cos(angle)));
  EXPECT_FLOAT_EQ(halves[2], static_cast<float>(std::sin(angle)));
  EXPECT_EQ(halves[1], 0.0f);
}

TEST(Rope, ScoresDependOnTheDistanceAlone) {
  const std::vector<float> q = normal(64, 5), k = normal(64, 6);
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    const Rope rope(rope_config(pairs, 64), {});
    const auto score = [&](int64_t a, int64_t b) {
      const std::vector<float> x = turned(rope, a, q), y = turned(rope, b, k);
      double sum = 0;
      for (size_t i = 0; i < 64; ++i) sum += double{x[i]} * double{y[i]};
      return sum;
    };
    EXPECT_NEAR(score(10, 3), score(8007, 8000), 1e-5);
    EXPECT_GT(std::abs(score(10, 3) - score(10, 4)), 1e-3);
  }
}

TEST(Rope, LinearScalingOfAPositionIsTheUnscaledFraction) {
  RopeConfig scaled = rope_config(RopePairs::halves, 16);
  scaled.scaling = RopeScaling::linear;
  scaled.factor = 4;
  const std::vector<float> head = normal(16, 7);
  EXPECT_EQ(turned(Rope(scaled, {}), 40, head), turned(Rope(rope_config(RopePairs::halves, 16), {}), 10, head));
}

TEST(Rope, YarnKeepsFastPairsDividesSlowOnesAndScalesBoth) {
  RopeConfig config = rope_config(RopePairs::halves, 64);
  config.scaling = RopeScaling::yarn;
  config.factor = 4;
  config.original_context = 4096;
  const Rope rope(config, {});
  std::vector<float> c(32), s(32);
  rope.turns(1, c.data(), s.data());
  const double magnitude = 0.1 * std::log(4.0) + 1;
  EXPECT_FLOAT_EQ(s[0], static_cast<float>(std::sin(1.0) * magnitude));
  const double slowest = std::pow(10000.0, -62.0 / 64.0) / 4;
  EXPECT_FLOAT_EQ(s[31], static_cast<float>(std::sin(slowest) * magnitude));
}

TEST(Rope, DivisorsDivideTheirOwnPair) {
  const std::vector<float> divisors = {1.0f, 8.0f};
  const Rope rope(rope_config(RopePairs::adjacent, 4), divisors);
  std::vector<float> c(2), s(2);
  rope.turns(100, c.data(), s.data());
  EXPECT_FLOAT_EQ(s[0], static_cast<float>(std::sin(100.0)));
  EXPECT_FLOAT_EQ(s[1], static_cast<float>(std::sin(100.0 * 0.01 / 8)));
}

}  // namespace
}  // namespace octalane
