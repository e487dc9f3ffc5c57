// Both forms of activations, judged by arithmetic of the tests' own and by equality between instruction sets.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int64_t padded(int64_t cols, int64_t unit) { return (cols + unit - 1) / unit * unit; }

struct Buffers {
  std::vector<float> f32, scales;
  std::vector<int8_t> codes;
  std::vector<int32_t> sums;
  std::vector<uint16_t> bf16;
};

/// Buffers start as garbage: whatever is not written shows.
Buffers quantize(const IsaTable& isa, ActivationForm form, ActivationGroups groups, MatrixView<const float> x,
                 int64_t stride) {
  const bool coded = has_codes(form);
  const int64_t rows = is_tiled(form) ? padded(x.rows, kStripTokens) : x.rows;
  const auto count = [&](int64_t per_row) { return static_cast<size_t>(rows * per_row); };
  Buffers b{std::vector<float>(count(form == ActivationForm::bf16_as_f32 ? stride : 0), -7.0f),
            std::vector<float>(count(coded ? groups.scales(stride) : 0), -7.0f),
            std::vector<int8_t>(count(coded ? stride : 0), -7),
            std::vector<int32_t>(count(coded ? groups.sums(stride) : 0), -7),
            std::vector<uint16_t>(count(form == ActivationForm::bf16_tiles ? stride : 0), 7)};
  // Rows in two parts, as threads would take them.
  const int64_t cut = x.rows / 3;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{cut, x.rows}, {0, cut}}) {
    quantizer(isa, form).run({.x = x,
                              .groups = groups,
                              .stride = stride,
                              .row_begin = begin,
                              .row_end = end,
                              .f32 = b.f32.data(),
                              .codes = b.codes.data(),
                              .scales = b.scales.data(),
                              .sums = b.sums.data(),
                              .bf16 = b.bf16.data()});
  }
  return b;
}

/// Ordinary rows, and rows of everything that is not.
Activations awkward_activations(int64_t cols) {
  Activations x = Activations::random(14, cols, static_cast<uint32_t>(cols));
  const auto fill = [&](int64_t m, float value) {
    for (int64_t k = 0; k < cols; ++k) x.at(m, k) = value;
  };
  const auto scale = [&](int64_t m, float factor) {
    for (int64_t k = 0; k < cols; ++k) x.at(m, k) *= factor;
  };
  fill(1, 0.0f);
  fill(2, -0.0f);
  scale(3, 1e-4f);
  scale(4, 1e-30f);
  scale(5, 1e-39f);
  fill(6, 3.0e-39f);  // one denormal
  scale(7, 1e38f);    // rounds to infinity here and there
  x.at(8, cols / 2) = kNaN;
  x.at(9, 0) = kInf;
  x.at(10, cols - 1) = -kInf;
  x.at(11, 0) = std::bit_cast<float>(0xFFFFFFFFu);  // NaN with every payload bit
  x.at(11, cols - 1) = std::bit_cast<float>(0x7F800001u);
  for (int64_t k = 0; k < cols; ++k) x.at(12, k) = std::bit_cast<float>(0x3F808000u + static_cast<uint32_t>(k << 16));
  fill(13, 1e-36f);
  return x;
}

constexpr int64_t kColumns[] = {16, 31, 32, 48, 100, 256, 576, 1040};
constexpr ActivationGroups kGroups[] = {{32, 16}, {32, 32}, {64, 64}, {128, 128}, {256, 32}};

TEST(QuantizeBf16, rounds_to_the_nearest_value_ties_to_even_and_pads_with_zeros) {
  for_each_isa([](const IsaTable& isa) {
    for (const int64_t cols : kColumns) {
      const Activations x = awkward_activations(cols);
      const int64_t stride = padded(cols, 32);
      const Buffers b = quantize(isa, ActivationForm::bf16_as_f32, {}, x.view(), stride);
      for (int64_t m = 0; m < x.rows(); ++m) {
        for (int64_t k = 0; k < stride; ++k) {
          const double wanted = k < cols ? nearest_bf16(x.at(m, k)) : 0.0;
          const auto as_float = static_cast<float>(wanted);  // beyond the largest bfloat16: infinity
          ASSERT_TRUE(same_bits(b.f32[static_cast<size_t>(m * stride + k)], as_float)) << isa.name << m << " " << k;
        }
      }
    }
  });
}

TEST(QuantizeS8, scale_is_amax_over_127_and_codes_are_the_nearest) {
  for_each_isa([](const IsaTable& isa) {
    for (const ActivationGroups groups : kGroups) {
      const int64_t cols = 576, stride = padded(cols, groups.scale_group);
      const Activations x = Activations::random(5, cols, 3);
      const Buffers b = quantize(isa, ActivationForm::s8, groups, x.view(), stride);
      for (int64_t m = 0; m < x.rows(); ++m) {
        for (int64_t k = 0; k < stride; ++k) {
          const int64_t begin = k / groups.scale_group * groups.scale_group;
          double amax = 0;
          for (int64_t c = begin; c < std::min(cols, begin + groups.scale_group); ++c) {
            amax = std::fmax(amax, std::fabs(x.at(m, c)));
          }
          const double scale = b.scales[static_cast<size_t>((m * stride + k) / groups.scale_group)];
          ASSERT_NEAR(scale, amax / 127, amax / 127 * 0x1p-24);
          const int code = b.codes[static_cast<size_t>(m * stride + k)];
          if (k >= cols) {
            ASSERT_EQ(code, 0);
          } else {
            // Two fp32 roundings of at most 127 before the last one: half a step and a little.
            ASSERT_LE(std::fabs(x.at(m, k) / amax * 127 - code), 0.5 + 127 * 0x1p-22);
          }
        }
      }
    }
  });
}

TEST(QuantizeS8, sums_are_the_sums_of_the_codes) {
  for_each_isa([](const IsaTable& isa) {
    for (const ActivationGroups groups : kGroups) {
      for (const int64_t cols : kColumns) {
        const Activations x = awkward_activations(cols);
        const int64_t stride = padded(cols, groups.scale_group);
        const Buffers b = quantize(isa, ActivationForm::s8, groups, x.view(), stride);
        for (size_t g = 0; g < b.sums.size(); ++g) {
          int64_t sum = 0;
          for (int c = 0; c < groups.sum_group; ++c) sum += b.codes[g * static_cast<size_t>(groups.sum_group) + c];
          ASSERT_EQ(b.sums[g], sum) << isa.name;
        }
      }
    }
  });
}

TEST(QuantizeS8, tiny_groups_give_zero_and_groups_with_nan_or_infinity_give_nan) {
  for_each_isa([](const IsaTable& isa) {
    const int64_t cols = 64;
    const Activations x = awkward_activations(cols);
    const Buffers b = quantize(isa, ActivationForm::s8, {32, 32}, x.view(), cols);
    const auto scale = [&](int64_t m, int64_t g) { return b.scales[static_cast<size_t>(2 * m + g)]; };
    for (const int64_t m : {1, 2, 5, 6}) EXPECT_EQ(scale(m, 0), 0.0f) << m;
    for (const int64_t m : {0, 3, 4, 7, 12, 13}) EXPECT_TRUE(std::isfinite(scale(m, 0)) && scale(m, 0) > 0) << m;
    EXPECT_TRUE(std::isnan(scale(8, 1)) && !std::isnan(scale(8, 0)));
    EXPECT_TRUE(std::isnan(scale(9, 0)) && !std::isnan(scale(9, 1)));
    EXPECT_TRUE(std::isnan(scale(10, 1)) && !std::isnan(scale(10, 0)));
    EXPECT_TRUE(std::isnan(scale(11, 0)) && std::isnan(scale(11, 1)));
    for (size_t k = 0; k < 32; ++k) EXPECT_EQ(b.codes[static_cast<size_t>(9 * cols) + k], 0);
  });
}

TEST(QuantizeE4m3, scale_is_the_least_power_of_two_that_keeps_a_row_within_448_and_codes_are_the_nearest) {
  for_each_isa([](const IsaTable& isa) {
    for (const int64_t cols : kColumns) {
      Activations x = awkward_activations(cols);
      x.at(0, cols / 2) = 448.0f;  // the ends of two powers of two
      x.at(2, 0) = 448.00003f;
      const int64_t stride = padded(cols, 32);
      const Buffers b = quantize(isa, ActivationForm::e4m3, {kWholeRow, 0}, x.view(), stride);
      ASSERT_EQ(b.scales[0], 1.0f);
      ASSERT_EQ(b.scales[2], 2.0f);
      for (int64_t m = 0; m < x.rows(); ++m) {
        double amax = 0;
        for (int64_t k = 0; k < cols; ++k)
          amax = std::isfinite(x.at(m, k)) ? std::fmax(amax, std::fabs(x.at(m, k))) : kInf;
        const double wanted = amax < 448 * 0x1p-126 ? (amax > 448 * 0x1p-127 ? 0x1p-126 : 0)
                              : std::isinf(amax)    ? kNaN
                                                    : std::exp2(std::ceil(std::log2(amax / 448)));
        const float scale = b.scales[static_cast<size_t>(m)];
        ASSERT_TRUE(same_bits(scale, static_cast<float>(wanted))) << isa.name << " row " << m << " " << scale;
        for (int64_t k = 0; k < stride; ++k) {
          const auto code = static_cast<uint8_t>(b.codes[static_cast<size_t>(m * stride + k)]);
          if (k >= cols || !(scale > 0)) {
            ASSERT_EQ(code, 0);
          } else {
            ASSERT_EQ(e4m3_to_f32(code), nearest_e4m3(double{x.at(m, k)} / scale)) << m << " " << k;
          }
        }
      }
    }
  });
}

TEST(Quantize, every_instruction_set_gives_the_bits_of_scalar) {
  const IsaTable& scalar = *find_isa("scalar");
  for_each_isa([&](const IsaTable& isa) {
    for (const int64_t cols : kColumns) {
      const Activations x = awkward_activations(cols);
      for (const ActivationGroups groups : kGroups) {
        const int64_t stride = padded(cols, groups.scale_group);
        const Buffers a = quantize(scalar, ActivationForm::s8, groups, x.view(), stride);
        const Buffers b = quantize(isa, ActivationForm::s8, groups, x.view(), stride);
        ASSERT_EQ(a.codes, b.codes);
        ASSERT_EQ(a.sums, b.sums);
        for (size_t i = 0; i < a.scales.size(); ++i) ASSERT_TRUE(same_bits(a.scales[i], b.scales[i]));
      }
      const Buffers a = quantize(scalar, ActivationForm::bf16_as_f32, {}, x.view(), padded(cols, 32));
      const Buffers b = quantize(isa, ActivationForm::bf16_as_f32, {}, x.view(), padded(cols, 32));
      for (size_t i = 0; i < a.f32.size(); ++i) ASSERT_TRUE(same_bits(a.f32[i], b.f32[i]));
    }
  });
}

TEST(QuantizeS8, the_last_group_of_a_row_may_be_shorter_and_a_group_may_be_the_row) {
  for_each_isa([](const IsaTable& isa) {
    const Activations x = Activations::random(3, 576, 5);
    for (const int group : {256, kWholeRow}) {
      const Buffers b = quantize(isa, ActivationForm::s8, {group, 0}, x.view(), 576);
      const int64_t scales = group == 256 ? 3 : 1;
      ASSERT_EQ(b.scales.size(), static_cast<size_t>(3 * scales));
      EXPECT_TRUE(b.sums.empty());
      for (int64_t m = 0; m < 3; ++m) {
        for (int64_t g = 0; g < scales; ++g) {
          const int64_t begin = group == 256 ? g * 256 : 0,
                        end = group == 256 ? std::min<int64_t>(576, begin + 256) : 576;
          float amax = 0;
          for (int64_t k = begin; k < end; ++k) amax = std::max(amax, std::fabs(x.at(m, k)));
          ASSERT_EQ(b.scales[static_cast<size_t>(m * scales + g)], amax / 127.0f) << isa.name;
          for (int64_t k = begin; k < end; ++k) {
            ASSERT_EQ(b.codes[static_cast<size_t>(m * 576 + k)], std::nearbyint(x.at(m, k) * (127.0f / amax)));
          }
        }
      }
    }
  });
}

TEST(Quantize, tiled_forms_hold_what_the_plain_forms_hold_in_the_order_of_tiles) {
  for_each_isa([](const IsaTable& isa) {
    for (const int64_t cols : kColumns) {
      Activations x = awkward_activations(cols);
      const int64_t stride = padded(cols, 64);
      const Buffers plain = quantize(isa, ActivationForm::bf16_as_f32, {}, x.view(), stride);
      const Buffers tiled = quantize(isa, ActivationForm::bf16_tiles, {}, x.view(), stride);
      for (int64_t m = 0; m < 32; ++m) {
        for (int64_t k = 0; k < stride; ++k) {
          const uint16_t got = tiled.bf16[static_cast<size_t>(tiled_index(m, k, stride, 32))];
          if (m >= x.rows()) {
            ASSERT_EQ(got, 7) << "rows past the last are left alone";
          } else {
            ASSERT_TRUE(same_bits(bf16_to_f32(got), plain.f32[static_cast<size_t>(m * stride + k)])) << isa.name;
          }
        }
      }
      for (const ActivationGroups groups : {ActivationGroups{32, 32}, {256, 0}, {kWholeRow, 0}}) {
        const Buffers a = quantize(isa, ActivationForm::s8, groups, x.view(), stride);
        const Buffers b = quantize(isa, ActivationForm::s8_tiles, groups, x.view(), stride);
        for (int64_t m = 0; m < x.rows(); ++m) {
          for (int64_t k = 0; k < stride; ++k) {
            ASSERT_EQ(a.codes[static_cast<size_t>(m * stride + k)],
                      b.codes[static_cast<size_t>(tiled_index(m, k, stride, 64))])
                << isa.name << " m " << m << " k " << k;
          }
        }
        for (size_t i = 0; i < a.scales.size(); ++i) ASSERT_TRUE(same_bits(a.scales[i], b.scales[i]));
        for (size_t i = 0; i < a.sums.size(); ++i) ASSERT_EQ(a.sums[i], b.sums[i]);
      }
    }
  });
}

TEST(Quantize, a_broadcast_row_equals_its_copies) {
  for_each_isa([](const IsaTable& isa) {
    const Activations x = Activations::random(1, 100, 4);
    Activations copies(7, 100, 0);
    for (int64_t m = 0; m < 7; ++m) {
      for (int64_t k = 0; k < 100; ++k) copies.at(m, k) = x.at(0, k);
    }
    MatrixView<const float> broadcast = x.view();
    broadcast.rows = 7;
    broadcast.row_stride = 0;
    for (const ActivationForm form : {ActivationForm::bf16_as_f32, ActivationForm::s8}) {
      const Buffers a = quantize(isa, form, {32, 32}, broadcast, 128);
      const Buffers b = quantize(isa, form, {32, 32}, copies.view(), 128);
      EXPECT_EQ(a.f32, b.f32);
      EXPECT_EQ(a.codes, b.codes);
      EXPECT_EQ(a.scales, b.scales);
    }
  });
}

}  // namespace
}  // namespace octalane::test
