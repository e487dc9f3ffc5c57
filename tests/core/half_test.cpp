#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octalane {
namespace {

// fp64 judges: a half is sign * mantissa * 2^e by definition, and a rounded value is the nearest of its two neighbours.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, every_finite_half_has_its_value_and_comes_back) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((bits >> 10 & 31) == 31) continue;
    ASSERT_EQ(double{f16_to_f32(half)}, half_value(half)) << bits;
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), half) << bits;
  }
}

TEST(Half, values_between_two_halves_go_to_the_nearest_and_ties_to_even) {
  for (unsigned bits = 0; bits < 0x7BFF; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);  // exact in fp32
    ASSERT_EQ(f32_to_f16(middle), (bits & 1) == 0 ? low : high) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), high) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
}

TEST(Half, infinities_and_nans_stay_what_they_are) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f16_to_f32(0x7C00), infinity);
  EXPECT_EQ(f16_to_f32(0xFC00), -infinity);
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7C01)));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::nanf("")))));
  EXPECT_EQ(f32_to_f16(infinity), 0x7C00);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7FFFFFFFu)))));
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(infinity)), infinity);
}

TEST(Bf16, values_between_two_go_to_the_nearest_and_ties_to_even) {
  for (unsigned bits = 0; bits < 0x7F7F; ++bits) {
    const float middle = std::bit_cast<float>((bits << 16) + 0x8000u);
    ASSERT_EQ(f32_to_bf16(middle), (bits & 1) == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(f32_to_bf16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(f32_to_bf16(std::nextafter(middle, std::numeric_limits<float>::infinity())), bits + 1);
  }
  EXPECT_EQ(round_to_bf16(-1.0f), -1.0f);
}

TEST(E8m0, is_a_power_of_two_or_nan) {
  for (int bits = 0; bits < 255; ++bits) {
    ASSERT_EQ(double{e8m0_to_f32(static_cast<uint8_t>(bits))}, std::ldexp(1.0, bits - 127));
    ASSERT_EQ(double{e8m0_half_to_f32(static_cast<uint8_t>(bits))}, std::ldexp(1.0, bits - 128));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
  EXPECT_EQ(double{e8m0_half_to_f32(255)}, std::ldexp(1.0, 127));
}

TEST(E4m3, has_the_values_of_the_ocp_specification) {
  for (int bits = 0; bits < 128; ++bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    const auto positive = static_cast<uint8_t>(bits), negative = static_cast<uint8_t>(bits | 128);
    if (bits == 127) {
      EXPECT_TRUE(std::isnan(e4m3_to_f32(positive)) && std::isnan(e4m3_to_f32(negative)));
      continue;
    }
    const double value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    ASSERT_EQ(double{e4m3_to_f32(positive)}, value) << bits;
    ASSERT_EQ(double{e4m3_to_f32(negative)}, -value) << bits;
    ASSERT_TRUE(std::signbit(e4m3_to_f32(negative))) << bits;
  }
  EXPECT_EQ(e4m3_to_f32(126), 448.0f);
}

TEST(E4m3, values_between_two_go_to_the_nearest_and_ties_to_even) {
  for (int bits = 0; bits < 126; ++bits) {
    const auto low = static_cast<uint8_t>(bits), high = static_cast<uint8_t>(bits + 1);
    const float middle = (e4m3_to_f32(low) + e4m3_to_f32(high)) / 2;
    ASSERT_EQ(f32_to_e4m3(e4m3_to_f32(low)), low);
    ASSERT_EQ(f32_to_e4m3(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, 1e9f)), high) << bits;
    ASSERT_EQ(f32_to_e4m3(-e4m3_to_f32(high)), high | 128) << bits;
  }
}

TEST(E4m3, saturates_and_keeps_nan) {
  EXPECT_EQ(f32_to_e4m3(448.0f), 0x7E);
  EXPECT_EQ(f32_to_e4m3(464.0f), 0x7E);
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::infinity()), 0x7E);
  EXPECT_EQ(f32_to_e4m3(-1e30f), 0xFE);
  EXPECT_EQ(f32_to_e4m3(std::nanf("")), 0x7F);
  EXPECT_EQ(f32_to_e4m3(1e-30f), 0);
}

}  // namespace
}  // namespace octalane
