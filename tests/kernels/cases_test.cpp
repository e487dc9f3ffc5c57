// Inputs that broke other projects, on every kernel of this machine.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const Kernel& scalar_gemm(StagedType staged) {
  for (const Kernel& kernel : find_isa("scalar")->kernels) {
    if (kernel.staged == staged && kernel.op == Op::gemm) return kernel;
  }
  return find_isa("scalar")->kernels[0];
}

/// Every kernel gives the bits of the scalar gemm (NaN for NaN), or, where it sums in an order of its own, is as near
/// to it as both are to fp64; subnormal weights, which it may take for zeros, weigh nothing then. Canaries are left
/// alone.
void expect_scalar_bits(const Planes& planes, const Activations& x) {
  for_each_kernel(planes.spec(), planes.cols(), [&](const IsaTable& isa, const Kernel& kernel) {
    Product product(isa, kernel, planes, x.view());
    Product reference(*find_isa("scalar"), scalar_gemm(kernel.staged), planes, x.view());
    const Outputs& y = product.run();
    const Outputs& wanted = reference.run();
    ASSERT_TRUE(y.canaries_intact());
    const bool bits = kernel.exactness == Exactness::bits;
    Judged judged = bits ? Judged{} : judge_kernel(kernel, planes, product.formed());
    if (kernel.exactness == Exactness::unrounded) {
      judged = judge_total(kernel.staged, planes, x, product.formed(), judged);
    }
    for (int64_t m = 0; m < product.y().rows; ++m) {
      for (int64_t n = 0; n < planes.rows(); ++n) {
        if (!bits) {
          const double slack = 2 * judged.tolerance[static_cast<size_t>(m * planes.rows() + n)] + 1e-30;
          if (!std::isfinite(wanted.at(m, n)) || !std::isfinite(slack)) {
            ASSERT_EQ(std::isfinite(y.at(m, n)), std::isfinite(wanted.at(m, n))) << m << " " << n;
            continue;
          }
          ASSERT_LE(std::fabs(y.at(m, n) - wanted.at(m, n)), slack) << m << " " << n;
          continue;
        }
        ASSERT_TRUE(same_bits(y.at(m, n), wanted.at(m, n)))
            << m << " " << n << ": wanted " << wanted.at(m, n) << ", got " << y.at(m, n);
      }
    }
  });
}

/// Every kernel stays within the tolerance of fp64, and finite.
void expect_judged(const Planes& planes, const Activations& x) {
  for_each_kernel(planes.spec(), planes.cols(), [&](const IsaTable& isa, const Kernel& kernel) {
    Product product(isa, kernel, planes, x.view());
    product.run();
    const Judged judged = judge_kernel(kernel, planes, product.formed());
    EXPECT_EQ(mismatch(judged, product.y()), "");
    EXPECT_EQ(mismatch(judge_total(kernel.staged, planes, x, product.formed(), judged), product.y()), "");
  });
}

void fill_codes(Planes& planes, uint8_t code) {
  for (int64_t r = 0; r < planes.rows(); ++r)
    std::memset(planes.row(r).codes, code, static_cast<size_t>(planes.codes_per_row()));
}

TEST(Case, C1_a_block_of_activations_of_3000_keeps_its_sum) {
  for (const NamedSpec& spec : all_specs()) {
    if (!spec.spec.scale.has_bias) continue;
    SCOPED_TRACE(spec.name);
    const Planes planes = random_planes(spec.spec, 8, 256, 21);
    Activations x = Activations::random(4, 256, 22);
    for (int64_t k = 64; k < 96; ++k) x.at(1, k) = 3000.0f;
    expect_judged(planes, x);
  }
}

TEST(Case, C2_operands_of_one_sign_reach_70000_in_a_group) {
  for (const NamedSpec& spec : all_specs()) {
    SCOPED_TRACE(spec.name);
    Planes planes = random_planes(spec.spec, 8, 256, 23);
    for (int64_t r = 0; r < 8; ++r) {
      const PlaneRow row = planes.row(r);
      if (spec.spec.code.is_float()) continue;
      const auto top = static_cast<uint8_t>((1u << spec.spec.code.bits) - 1u);
      std::memset(row.codes, spec.spec.code.map == CodeMap::e4m3 ? 0x7E : top,
                  static_cast<size_t>(planes.codes_per_row()));
      for (int64_t g = 0; g < planes.scales_per_row(); ++g) row.scale[g] = 4.0f;
      if (spec.spec.scale.nested()) std::memset(row.sub_scale, 63, static_cast<size_t>(256 / spec.spec.scale.group));
    }
    Activations x(4, 256, 3);
    for (int64_t m = 0; m < 4; ++m) {
      for (int64_t k = 0; k < 256; ++k) x.at(m, k) = 140.0f + static_cast<float>(k % 7);
    }
    expect_judged(planes, x);
  }
}

TEST(Case, C5_a_broadcast_token_equals_its_copies) {
  for (const char* name : {"u4_g32_f16_bias", "u6_zero32_g16_nested", "f16"}) {
    const Planes planes = random_planes(spec_named(name).spec, 33, 256, 24);
    const Activations one = Activations::random(1, 256, 25);
    MatrixView<const float> broadcast = one.view();
    broadcast.rows = 4;
    broadcast.row_stride = 0;
    for_each_kernel(planes.spec(), 256, [&](const IsaTable& isa, const Kernel& kernel) {
      Product single(isa, kernel, planes, one.view()), many(isa, kernel, planes, broadcast);
      single.run();
      many.run();
      for (int64_t m = 0; m < many.y().rows; ++m) {
        for (int64_t n = 0; n < 33; ++n) ASSERT_EQ(many.y()(m, n), single.y()(0, n));
      }
    });
  }
}

TEST(Case, C5_a_token_may_stand_at_every_place_of_a_batch) {
  for (const char* name : {"u4_g32_f16_bias", "u6_zero32_g16_nested", "table_g32_e8m0half", "bf16"}) {
    const Planes planes = random_planes(spec_named(name).spec, 40, 512, 26);
    const Activations x = Activations::random(64, 512, 27);
    for_each_kernel(planes.spec(), 512, [&](const IsaTable& isa, const Kernel& kernel) {
      Product batch(isa, kernel, planes, x.view());
      batch.run();
      for (int64_t m = 0; m < batch.y().rows; ++m) {
        MatrixView<const float> alone = x.view();
        alone.data = alone.row(m);
        alone.rows = 1;
        Product single(isa, kernel, planes, alone);
        single.run();
        for (int64_t n = 0; n < 40; ++n) ASSERT_EQ(single.y()(0, n), batch.y()(m, n)) << m << " " << n;
      }
    });
  }
}

TEST(Case, C6_a_hundred_repeats_give_the_same_bits) {
  const Planes planes = random_planes(spec_named("u5_g32_nested_bias").spec, 31, 256, 28);
  const Activations x = Activations::random(7, 256, 29);
  for_each_kernel(planes.spec(), 256, [&](const IsaTable& isa, const Kernel& kernel) {
    Product first(isa, kernel, planes, x.view());
    first.run();
    for (int i = 0; i < 100; ++i) {
      Product again(isa, kernel, planes, x.view());
      again.run();
      for (int64_t m = 0; m < first.y().rows; ++m) {
        ASSERT_EQ(std::memcmp(first.y().row(m), again.y().row(m), 31 * sizeof(float)), 0);
      }
    }
  });
}

TEST(Case, C7_rows_of_zeros_tiny_and_denormal_values_stay_finite_and_nan_rows_stay_alone) {
  for (const NamedSpec& spec : all_specs()) {
    SCOPED_TRACE(spec.name);
    const Planes planes = random_planes(spec.spec, 33, 256, 30);
    Activations x = Activations::random(9, 256, 31);
    for (int64_t k = 0; k < 256; ++k) {
      x.at(0, k) = 0.0f;
      x.at(1, k) *= 1e-4f;
      x.at(2, k) *= 1e-30f;
      x.at(3, k) = k == 100 ? 1e-40f : 0.0f;
    }
    x.at(5, 200) = kNaN;
    x.at(7, 3) = -kInf;
    for_each_kernel(spec.spec, 256, [&](const IsaTable& isa, const Kernel& kernel) {
      // Kernels of few tokens see the rows one by one.
      for (int64_t m = 0; m < 9; ++m) {
        MatrixView<const float> rows = x.view();
        if (kernel.max_tokens < 9) rows = {rows.row(m), 1, 256, rows.row_stride, 1};
        Product product(isa, kernel, planes, rows);
        product.run();
        const int64_t at = kernel.max_tokens < 9 ? 0 : m;
        for (int64_t n = 0; n < 33; ++n) {
          const bool finite = std::isfinite(product.y()(at, n));
          ASSERT_EQ(finite, m != 5 && m != 7) << "row " << m << " output " << n;
          ASSERT_TRUE(m != 5 || std::isnan(product.y()(at, n)));
        }
      }
    });
    expect_scalar_bits(planes, x);
  }
}

/// The largest codes, scales and minima, activations of +-127 with scale 1: per group exactly 127 * 15 * 32 and more.
Planes all_max(const NamedSpec& spec, int64_t rows, int64_t cols) {
  Planes planes(spec.spec, rows, cols);
  const ScaleSpec& s = spec.spec.scale;
  fill_codes(planes, static_cast<uint8_t>((1u << spec.spec.code.bits) - 1u));
  for (int64_t r = 0; r < rows; ++r) {
    const PlaneRow row = planes.row(r);
    if (r % 3 == 1) std::memset(row.codes, 0, static_cast<size_t>(cols));  // with a zero point: the least level
    for (int64_t g = 0; g < planes.scales_per_row(); ++g) {
      row.scale[g] = 1.0f;
      if (s.has_bias) row.bias[g] = 1.0f;
    }
    if (!s.nested()) continue;
    std::memset(row.sub_scale, 63, static_cast<size_t>(cols / s.group));
    if (s.has_bias) std::memset(row.sub_min, 63, static_cast<size_t>(cols / s.group));
  }
  return planes;
}

/// s8.group as kernel.h's rows state it, from int64 dots of planes and activations.
float modelled(const Planes& planes, int64_t n, const Formed& formed, int64_t m) {
  const ActivationsView x = formed.view();
  const ScaleSpec& s = planes.spec().scale;
  const PlaneRow row = planes.row(n);
  const int64_t groups = planes.cols() / s.group, per_scale = x.groups.scale_group / s.group;
  float y = 0.0f, t = 0.0f;
  for (int64_t g = 0; g < groups; ++g) {
    int64_t dot = 0, sum = 0;
    for (int64_t k = g * s.group; k < (g + 1) * s.group; ++k) {
      const int64_t code = formed.code(m, k);
      dot += planes.spec().code.level(row.codes[k]) * code;
      sum += code;
    }
    EXPECT_LT(std::llabs(dot), int64_t{1} << 31);
    const int64_t outer = s.nested() ? g * s.group / s.super : g;
    const float scale = s.nested() ? row.scale[outer] * static_cast<float>(row.sub_scale[g]) : row.scale[outer];
    if (s.has_bias) {
      const float bias = s.nested() ? -(row.bias[outer] * static_cast<float>(row.sub_min[g])) : row.bias[outer];
      t = std::fma(bias, static_cast<float>(sum), t);
    }
    t = std::fma(scale, static_cast<float>(dot), t);
    if ((g + 1) % per_scale != 0 && g + 1 != groups) continue;
    y = std::fma(static_cast<float>(formed.scale(m, g * s.group)), t, y);
    t = 0.0f;
  }
  return y;
}

void expect_model_bits(const NamedSpec& spec, int64_t cols, bool alternate) {
  SCOPED_TRACE(spec.name);
  const Planes planes = all_max(spec, 19, cols);
  Activations x(3, cols, 0);
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t k = 0; k < cols; ++k) x.at(m, k) = (m == 1) != (alternate && k % 2 == 1) ? -127.0f : 127.0f;
  }
  for_each_kernel(spec.spec, cols, [&](const IsaTable& isa, const Kernel& kernel) {
    if (kernel.staged != StagedType::s8_group) return;
    Product product(isa, kernel, planes, x.view());
    ASSERT_EQ(product.formed().view().scales[0], 1.0f);
    product.run();
    for (int64_t m = 0; m < product.y().rows; ++m) {
      for (int64_t n = 0; n < 19; ++n) {
        ASSERT_TRUE(same_bits(product.y()(m, n), modelled(planes, n, product.formed(), m))) << m << " " << n;
      }
    }
  });
}

TEST(Case, C8_largest_codes_and_activations_equal_an_int64_model_bit_for_bit) {
  for (const NamedSpec& spec : all_specs()) {
    if (!spec.spec.code.has_integer_levels()) continue;
    for (const bool alternate : {false, true}) {
      expect_model_bits(spec, 256, alternate);
      expect_model_bits(spec, 32768, alternate);
    }
  }
}

TEST(Case, C8_random_codes_equal_an_int64_model_bit_for_bit) {
  for (const NamedSpec& spec : all_specs()) {
    if (!spec.spec.code.has_integer_levels()) continue;
    SCOPED_TRACE(spec.name);
    const Planes planes = random_planes(spec.spec, 19, 768, 32);
    const Activations x = Activations::random(4, 768, 33);
    for_each_kernel(spec.spec, 768, [&](const IsaTable& isa, const Kernel& kernel) {
      if (kernel.staged != StagedType::s8_group) return;
      Product product(isa, kernel, planes, x.view());
      product.run();
      for (int64_t m = 0; m < product.y().rows; ++m) {
        for (int64_t n = 0; n < 19; ++n) {
          ASSERT_TRUE(same_bits(product.y()(m, n), modelled(planes, n, product.formed(), m))) << m << " " << n;
        }
      }
    });
  }
}

/// Scales at the ends of their type, among ordinary ones: zero, subnormal, largest, infinite, NaN, both signs.
std::vector<float> extreme_scales(ScaleType type) {
  switch (type) {
    case ScaleType::f16: return {0.0f, 0x1p-24f, -0x3p-24f, 65504.0f, -65504.0f, kInf, -kInf, kNaN, 1.0f};
    case ScaleType::e8m0: return {0x1p-127f, 0x1p-126f, 0x1p127f, 0x1p120f, kNaN, 1.0f};
    case ScaleType::e8m0_half: return {0x1p-128f, 0x1p-127f, 0x1p-126f, 0x1p127f, 0x1p120f, 1.0f};
    default: return {0.0f, 0x1p-126f, -0x1p-130f, 0x1p-99f, 0x1p-101f, 0x1p127f, -0x1.8p100f, kInf, -kInf, kNaN, 1.0f};
  }
}

TEST(Case, C12_scales_at_the_ends_of_their_type_give_the_bits_of_scalar) {
  for (const NamedSpec& spec : all_specs()) {
    if (spec.spec.code.is_float()) continue;
    SCOPED_TRACE(spec.name);
    const std::vector<float> scales = extreme_scales(spec.spec.scale.type);
    std::mt19937 random(34);
    Planes planes = random_planes(spec.spec, 120, 512, 35);
    for (int64_t r = 0; r < planes.rows(); ++r) {
      const PlaneRow row = planes.row(r);
      for (int64_t g = 0; g < planes.scales_per_row(); ++g) {
        if (random() % 2 == 0) row.scale[g] = scales[random() % scales.size()];
        if (spec.spec.scale.has_bias && random() % 2 == 0) row.bias[g] = scales[random() % scales.size()];
      }
    }
    expect_scalar_bits(planes, Activations::random(4, 512, 36));
  }
}

TEST(Case, C12_negative_and_narrow_affine_groups_are_within_tolerance) {
  const NamedSpec& spec = spec_named("u4_g64_bf16_bias");
  Planes planes = random_planes(spec.spec, 24, 256, 37);
  for (int64_t r = 0; r < planes.rows(); ++r) {
    for (int64_t g = 0; g < 4; ++g) {
      planes.row(r).scale[g] = g == 0 ? -0.5f : g == 1 ? 0x1p-7f : g == 2 ? 0.0f : -0x1p-20f;
      planes.row(r).bias[g] = g == 0 ? -3.0f : 10.0f;  // g == 1: all of [10.0, 10.12], g == 2: one value
    }
  }
  expect_judged(planes, Activations::random(4, 256, 38));
}

TEST(Case, e4m3_codes_of_every_value_give_the_bits_of_scalar_and_nan_codes_spoil_their_own_output_only) {
  for (const char* name : {"e4m3_g32_e8m0", "e4m3_g64_f32", "e4m3_g16_bf16_bias"}) {
    SCOPED_TRACE(name);
    Planes planes = random_planes(spec_named(name).spec, 49, 512, 45);
    for (int64_t r = 0; r < planes.rows(); ++r) {
      for (int64_t k = 0; k < 512; ++k) {
        const auto code = static_cast<uint8_t>(k + 5 * r);
        planes.row(r).codes[k] = (code & 0x7Fu) == 0x7F ? 0x7E : code;
      }
    }
    planes.row(5).codes[17] = 0x7F;
    planes.row(40).codes[510] = 0xFF;
    const Activations x = Activations::random(4, 512, 46);
    for_each_kernel(planes.spec(), 512, [&](const IsaTable& isa, const Kernel& kernel) {
      Product product(isa, kernel, planes, x.view());
      product.run();
      for (int64_t n = 0; n < planes.rows(); ++n) {
        ASSERT_EQ(std::isnan(product.y()(0, n)), n == 5 || n == 40) << "output " << n;
      }
    });
    expect_scalar_bits(planes, x);
  }
}

TEST(Case, float_weights_of_any_bits_give_the_bits_of_scalar) {
  for (const char* name : {"f16", "bf16", "f32"}) {
    SCOPED_TRACE(name);
    Planes planes = random_planes(spec_named(name).spec, 97, 64, 39);
    std::mt19937 random(40);
    const int width = planes.spec().code.bits / 8;
    for (int64_t r = 0; r < planes.rows(); ++r) {
      // One element of any bits in each row: infinities, NaNs with any payload, subnormals among them.
      const uint32_t specials[] = {0x7F800001u, 0xFFFFFFFFu, 0x7F7FFFFFu, 0x00000001u, 0x7FFFu, 0xFC00u, 0x7C01u};
      const uint32_t bits = r < 21 ? specials[r % 7] : static_cast<uint32_t>(random());
      const uint32_t placed = width == 2 && r % 2 == 0 ? bits >> 16 : bits;
      std::memcpy(planes.row(r).elements + (r % 64) * width, &placed, static_cast<size_t>(width));
    }
    expect_scalar_bits(planes, Activations::random(4, 64, 41));
  }
}

TEST(Case, C10_no_tokens_leave_y_alone_and_no_columns_give_zeros) {
  for (const char* name : {"u4_g32_f16_bias", "f32"}) {
    for_each_kernel(spec_named(name).spec, 64, [&](const IsaTable& isa, const Kernel& kernel) {
      const Planes planes = random_planes(spec_named(name).spec, 20, 64, 42);
      const Activations x = Activations::random(3, 64, 43);
      MatrixView<const float> nobody = x.view();
      nobody.rows = 0;
      Product none(isa, kernel, planes, nobody);
      EXPECT_TRUE(none.run().canaries_intact());

      const Planes empty = random_planes(spec_named(name).spec, 20, 0, 44);
      const Activations zero_columns(3, 0, 4);
      Product product(isa, kernel, empty, zero_columns.view());
      EXPECT_TRUE(product.run().canaries_intact());
      for (int64_t m = 0; m < product.y().rows; ++m) {
        for (int64_t n = 0; n < 20; ++n) EXPECT_EQ(product.y()(m, n), 0.0f);
      }
    });
  }
}

}  // namespace
}  // namespace octalane::test
