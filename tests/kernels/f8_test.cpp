// The E4M3 lanes where their numbers end: edge codes and scales, long rows of one sign.
#include <cmath>
#include <functional>
#include <limits>

#include "core/half.h"
#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

bool is_f8(const Kernel& kernel) { return info(kernel.staged).lane == Lane::f8; }

/// Weights whose rows hold the E4M3 codes 0 1 2 ... in turn, one scale per row of 32.
Planes every_code(float scale) {
  Planes planes(spec_named("e4m3_g32_e8m0").spec, 8, 32);
  for (int r = 0; r < 8; ++r) {
    for (int k = 0; k < 32; ++k) planes.row(r).codes[k] = static_cast<uint8_t>(32 * r + k);
    planes.row(r).scale[0] = scale;
  }
  return planes;
}

/// Token k picks column k: its activation there is 1.
Activations pickers() {
  Activations x(32, 32, 0);
  for (int m = 0; m < 32; ++m) {
    for (int k = 0; k < 32; ++k) x.at(m, k) = m == k ? 1.0f : 0.0f;
  }
  return x;
}

TEST(F8, every_code_comes_out_exactly_zeros_subnormals_and_448_among_them_and_nan_codes_give_nan) {
  for (const float scale : {1.0f, 0x1p-127f, 0x1p-9f, 0x1p100f}) {
    const Planes planes = every_code(scale);
    const Activations x = pickers();
    for_each_kernel(planes.spec(), 32, [&](const IsaTable& isa, const Kernel& kernel) {
      if (!is_f8(kernel)) return;
      Product product(isa, kernel, planes, x.view());
      product.run();
      for (int n = 0; n < 8; ++n) {
        for (int m = 0; m < 32; ++m) {
          // Rows 3 and 7 end in a NaN code, which spoils all products with that row.
          const float wanted = n % 4 == 3 ? std::numeric_limits<float>::quiet_NaN()
                                          : e4m3_to_f32(static_cast<uint8_t>(32 * n + m)) * scale;
          ASSERT_TRUE(same_bits(product.y()(m, n) + 0.0f, wanted + 0.0f))
              << "code " << 32 * n + m << " scale " << scale;
        }
      }
    });
  }
}

TEST(F8, a_scale_that_is_nan_spoils_its_own_output_only) {
  Planes planes = every_code(1.0f);
  planes.row(1).scale[0] = std::numeric_limits<float>::quiet_NaN();  // E8M0 255
  const Activations x = pickers();
  for_each_kernel(planes.spec(), 32, [&](const IsaTable& isa, const Kernel& kernel) {
    if (!is_f8(kernel)) return;
    Product product(isa, kernel, planes, x.view());
    product.run();
    for (int n = 0; n < 8; ++n) EXPECT_EQ(std::isnan(product.y()(0, n)), n == 1 || n % 4 == 3) << n;
  });
}

/// `value` cut to 14 significant bits.
double cut_to_14_bits(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(std::trunc(std::ldexp(value, 14 - exponent)), exponent - 14);
}

/// The accumulator of a matrix instruction that adds 32 exact products at once and keeps 14 bits, emptied into fp32
/// every `promoted` columns.
double narrow_sum(const std::function<double(int64_t)>& product, int64_t cols, int64_t promoted) {
  double y = 0, accumulator = 0;
  for (int64_t k = 0; k < cols; k += 32) {
    for (int64_t c = k; c < k + 32; ++c) accumulator += product(c);
    accumulator = cut_to_14_bits(accumulator);
    if ((k + 32) % promoted != 0) continue;
    y = static_cast<float>(y + accumulator);
    accumulator = 0;
  }
  return y + accumulator;
}

TEST(Case, C9_16384_columns_of_one_sign_stay_within_a_thousandth_and_would_not_in_14_bits) {
  constexpr int64_t kCols = 16384;
  Planes planes(spec_named("e4m3_g32_e8m0").spec, 4, kCols);
  Activations x(2, kCols, 0);
  std::mt19937 random(50);
  std::uniform_real_distribution<float> around_one(0.5f, 1.5f);
  for (int64_t k = 0; k < kCols; ++k) {
    for (int64_t n = 0; n < 4; ++n) {
      planes.row(n).codes[k] = f32_to_e4m3(around_one(random));
      planes.row(n).scale[k / 32] = 1.0f;
    }
    for (int64_t m = 0; m < 2; ++m) x.at(m, k) = around_one(random);
  }
  int lanes = 0;
  for_each_kernel(planes.spec(), kCols, [&](const IsaTable& isa, const Kernel& kernel) {
    if (!is_f8(kernel)) return;
    ++lanes;
    Product product(isa, kernel, planes, x.view());
    product.run();
    const Judged judged = judge_kernel(kernel, planes, product.formed());
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t n = 0; n < 4; ++n) {
        const auto term = [&](int64_t k) { return product.formed().value(m, k) * e4m3_to_f32(planes.row(n).codes[k]); };
        const double wanted = judged.y[static_cast<size_t>(m * 4 + n)];
        EXPECT_LE(std::fabs(product.y()(m, n) - wanted), 1e-3 * wanted);
        EXPECT_LE(std::fabs(narrow_sum(term, kCols, 128) - wanted), 1e-3 * wanted) << "promoted every 128 columns";
        EXPECT_GT(std::fabs(narrow_sum(term, kCols, kCols) - wanted), 1e-3 * wanted) << "never promoted";
      }
    }
  });
  EXPECT_EQ(lanes, 2);
}

}  // namespace
}  // namespace octalane::test
