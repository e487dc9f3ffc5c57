#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "core/half.h"
#include "core/restage.h"
#include "kernels/registry.h"
#include "linear/linear_testing.h"
#include "linear/reference.h"

namespace octalane {
namespace {

struct Case {
  const Format* format;
  const IsaTable* isa;
  StagedType lane;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const IsaTable* isa : isa_tables()) {
    if (!isa->unavailable().empty()) continue;
    for (const Format* format : formats()) {
      // Kernels see a spec: the many rows of one family differ in codecs, which have tests of their own.
      const bool is_one_of_many = format->name.ends_with("-f16") || format->name.ends_with("-f32");
      if (format->from_float == nullptr || is_one_of_many) continue;
      std::set<StagedType> lanes;
      for (const Kernel& kernel : isa->kernels) {
        if (kernel.supports({1, 33, 512, format->spec, kernel.staged}).empty()) lanes.insert(kernel.staged);
      }
      for (const StagedType lane : lanes) all.push_back({format, isa, lane});
    }
  }
  return all;
}

class LinearCase : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kRows = 33, kCols = 512, kTokens = 9;
  const Case c = GetParam();
  Context context = make_context(2, c.isa->name, c.lane);
  std::vector<std::byte> data = blocks(*c.format, kRows, kCols, 1);
  std::vector<float> x = normal(kTokens * kCols, 2);
  Linear linear = *Linear::bind(context, "w", *c.format, data.data(), kRows, kCols);

  std::vector<float> multiply(Context& with, MatrixView<const float> input) {
    std::vector<float> y(static_cast<size_t>(input.rows * kRows), std::nanf(""));
    const Status done = linear.multiply(with, input, dense_view(y.data(), input.rows, kRows));
    EXPECT_TRUE(done) << done.error().message;
    return y;
  }
  MatrixView<const float> input() const { return dense_view<const float>(x.data(), kTokens, kCols); }
};

TEST_P(LinearCase, product_is_right_to_the_lane_s_rounding) {
  Activations activations(context, input());
  std::vector<float> y(kTokens * kRows);
  ASSERT_TRUE(linear.multiply(context, activations, dense_view(y.data(), kTokens, kRows)));
  const ProductErrors errors =
      measure_errors(context, linear, activations, dense_view<const float>(y.data(), kTokens, kRows), kRows);
  // fp32 sums over 512 columns (bf16) or 16 groups (s8); two bf16 roundings of 2^-9, or int8 activations of a normal,
  // and int8 weights where they are encoded again; E4M3 activations lose 2.6 %.
  EXPECT_LE(errors.kernel, 1e-6);
  const double f8 = info(c.lane).lane == Lane::f8 ? 3.5e-2 : 0;
  EXPECT_LE(errors.total, f8 > 0 ? f8 : c.lane == StagedType::bf16 ? 4e-3 : restaged(c.lane) ? 2.5e-2 : 1.2e-2);
  EXPECT_GT(errors.total, 0);
}

TEST_P(LinearCase, a_row_alone_equals_the_row_in_a_batch_for_any_thread_count) {
  const std::vector<float> batch = multiply(context, input());
  for (const int threads : {1, 3}) {
    Context other = make_context(threads, c.isa->name, c.lane);
    EXPECT_EQ(0, std::memcmp(multiply(other, input()).data(), batch.data(), batch.size() * sizeof(float)));
    for (int64_t m = 0; m < kTokens; ++m) {
      const std::vector<float> alone = multiply(other, dense_view<const float>(x.data() + m * kCols, 1, kCols));
      ASSERT_EQ(0, std::memcmp(alone.data(), batch.data() + m * kRows, alone.size() * sizeof(float))) << "row " << m;
    }
  }
}

TEST_P(LinearCase, strided_transposed_and_broadcast_inputs_equal_their_copies) {
  const std::vector<float> batch = multiply(context, input());
  std::vector<float> wide(static_cast<size_t>(kTokens * (kCols + 3)), std::nanf(""));
  std::vector<float> transposed(x.size());
  for (int64_t m = 0; m < kTokens; ++m) {
    for (int64_t k = 0; k < kCols; ++k) {
      wide[static_cast<size_t>(m * (kCols + 3) + k)] = transposed[static_cast<size_t>(k * kTokens + m)] =
          x[static_cast<size_t>(m * kCols + k)];
    }
  }
  EXPECT_EQ(multiply(context, {wide.data(), kTokens, kCols, kCols + 3, 1}), batch);
  EXPECT_EQ(multiply(context, {transposed.data(), kTokens, kCols, 1, kTokens}), batch);
  const std::vector<float> broadcast = multiply(context, {x.data(), 4, kCols, 0, 1});
  for (int64_t m = 0; m < 4; ++m) {
    EXPECT_EQ(0, std::memcmp(broadcast.data() + m * kRows, batch.data(), kRows * sizeof(float)));
  }
}

TEST_P(LinearCase, a_view_from_row_five_equals_the_rows_of_the_whole) {
  const std::vector<float> whole = multiply(context, input());
  const Linear part =
      *Linear::bind(context, "part", *c.format, data.data() + 5 * c.format->row_bytes(kCols), kRows - 5, kCols);
  std::vector<float> y(static_cast<size_t>(kTokens * (kRows - 5)));
  ASSERT_TRUE(part.multiply(context, input(), dense_view(y.data(), kTokens, kRows - 5)));
  for (int64_t m = 0; m < kTokens; ++m) {
    EXPECT_EQ(0, std::memcmp(y.data() + m * (kRows - 5), whole.data() + m * kRows + 5, (kRows - 5) * sizeof(float)));
  }
}

INSTANTIATE_TEST_SUITE_P(Linear, LinearCase, testing::ValuesIn(cases()), [](const auto& test) {
  std::string all = fmt::format("{}_{}_{}", test.param.format->name, test.param.isa->name, name(test.param.lane));
  std::ranges::replace_if(
      all, [](char c) { return c == '.' || c == '-'; }, '_');
  return all;
});

TEST(Linear, decoded_rows_are_the_format_s_own_values) {
  Context context = make_context(1);
  const Format& format = *find_format("q6_k");
  const std::vector<std::byte> data = blocks(format, 3, 256, 7);
  const Linear linear = *Linear::bind(context, "w", format, data.data(), 3, 256);
  std::vector<float> wanted(256), got(256);
  const Planes planes(format.spec, 1, 256);
  for (int64_t r = 0; r < 3; ++r) {
    format.to_planes(data.data() + r * format.row_bytes(256), 256, planes.row(0));
    decode_row(format.spec, planes.row(0), 256, wanted.data());
    linear.decode_row(r, got.data());
    EXPECT_EQ(wanted, got);
  }
}

TEST(Linear, products_that_share_an_input_share_its_quantization) {
  Context context = make_context(1, "scalar", StagedType::s8_group);
  const Format& format = *find_format("q8_0");
  const std::vector<std::byte> data = blocks(format, 4, 64, 1);
  const Linear a = *Linear::bind(context, "a", format, data.data(), 4, 64);
  const Linear b = *Linear::bind(context, "b", format, data.data(), 2, 64);
  const std::vector<float> x = normal(3 * 64, 1);
  Activations activations(context, dense_view<const float>(x.data(), 3, 64));
  const ActivationsView& first = activations.get(a.choose(context, 3), a.weights());
  EXPECT_EQ(&first, &activations.get(b.choose(context, 3), b.weights()));
}

TEST(Linear, uses_name_the_kernel_that_ran_and_its_operations) {
  Context context = make_context(1, "scalar");
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 4, 64, 1);
  const Linear linear = *Linear::bind(context, "w", format, data.data(), 4, 64);
  const std::vector<float> x = normal(64, 1);
  std::vector<float> y(4);
  ASSERT_TRUE(linear.multiply(context, dense_view<const float>(x.data(), 1, 64), dense_view(y.data(), 1, 4)));
  ASSERT_EQ(context.uses().size(), 1u);
  EXPECT_EQ(context.uses().begin()->first, name(*linear.choose(context, 1).kernel));
  EXPECT_EQ(context.uses().begin()->second.calls, 1);
  EXPECT_EQ(context.uses().begin()->second.ops, 2.0 * 4 * 64);
}

std::string message(const Status& status) { return status ? "" : status.error().message; }

TEST(Linear, bad_shapes_are_refused_by_name) {
  Context context = make_context(1);
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 4, 64, 1);
  const Expected<Linear> ragged =
      Linear::bind(context, "blk.3.ffn_down.weight", *find_format("q4_k"), data.data(), 1, 300);
  ASSERT_FALSE(ragged);
  EXPECT_EQ(ragged.error().message, "blk.3.ffn_down.weight: 300 columns is not a multiple of 256, the block of q4_k");

  const Linear linear = *Linear::bind(context, "w", format, data.data(), 4, 64);
  std::vector<float> x(128), y(16);
  EXPECT_EQ(message(linear.multiply(context, dense_view<const float>(x.data(), 1, 65), dense_view(y.data(), 1, 4))),
            "w: wanted 64 input columns, got 65");
  EXPECT_NE(message(linear.multiply(context, dense_view<const float>(x.data(), 1, 64), dense_view(y.data(), 1, 3))),
            "");
  EXPECT_EQ(message(linear.multiply(context, dense_view<const float>(x.data(), 0, 64), dense_view(y.data(), 0, 4))),
            "");
}

TEST(Linear, a_lane_that_cannot_serve_the_weights_is_an_error_that_says_why) {
  Context context = make_context(1, "", StagedType::s8_group);
  const Format& format = *find_format("f16");
  const std::vector<std::byte> data = blocks(format, 1, 64, 1);
  const Expected<Linear> linear = Linear::bind(context, "head", format, data.data(), 1, 64);
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().message.rfind("head: no kernel serves", 0), 0u) << linear.error().message;
}

/// Blocks of 32 of q4_1: codes 0 to 15 from `low`, `step` apart.
std::vector<std::byte> q4_1_blocks(int64_t rows, int64_t cols, float low, float step) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * cols / 32 * 20));
  for (size_t at = 0; at < bytes.size(); at += 20) {
    const uint16_t halves[] = {f32_to_f16(step), f32_to_f16(low)};
    std::memcpy(bytes.data() + at, halves, sizeof halves);
    for (size_t i = 0; i < 16; ++i) bytes[at + 4 + i] = static_cast<std::byte>(i * 17);
  }
  return bytes;
}

TEST(Linear, weights_of_one_sign_far_from_zero_are_bound_for_s8_group_instead_and_say_so) {
  const Format& format = *find_format("q4_1");
  const std::vector<std::byte> far = q4_1_blocks(8, 512, 10.0f, 0.007f), fit = q4_1_blocks(8, 512, -1.0f, 0.125f);
  const std::vector<float> x = normal(3 * 512, 3);
  for (const StagedType lane : {StagedType::s8_row, StagedType::s8_xblock, StagedType::s8_block}) {
    Context context = make_context(1, "", lane);
    const Linear good = *Linear::bind(context, "good", format, fit.data(), 8, 512);
    EXPECT_EQ(good.fallback(), "");
    EXPECT_EQ(good.choose(context, 3).kernel->staged, lane);

    const Linear linear = *Linear::bind(context, "far", format, far.data(), 8, 512);
    const std::string wanted = fmt::format(
        "s8.group instead of {}: 128 groups of weights share a sign far from zero and would lose more than 1 % of "
        "their "
        "range",
        name(lane));
    EXPECT_EQ(linear.fallback(), wanted);
    EXPECT_EQ(linear.restaged(), nullptr);
    EXPECT_EQ(linear.choose(context, 3).kernel->staged, StagedType::s8_group);
    EXPECT_EQ(linear.plan(context, 3)->reason.rfind(wanted + "; least estimated time", 0), 0u);

    Context group = make_context(1, "", StagedType::s8_group);
    const Linear asked = *Linear::bind(group, "far", format, far.data(), 8, 512);
    std::vector<float> y(24), same(24);
    ASSERT_TRUE(linear.multiply(context, dense_view<const float>(x.data(), 3, 512), dense_view(y.data(), 3, 8)));
    ASSERT_TRUE(asked.multiply(group, dense_view<const float>(x.data(), 3, 512), dense_view(same.data(), 3, 8)));
    EXPECT_EQ(y, same);
    EXPECT_EQ(context.uses().at(name(*linear.choose(context, 3).kernel)).fallback, "far: " + wanted);
  }
}

/// MXFP4 blocks of 17 bytes, all codes in turn; the scale of block g of a row is 2^exponents[g].
std::vector<std::byte> mxfp4_blocks(int64_t rows, const std::vector<int>& exponents) {
  std::vector<std::byte> bytes;
  for (int64_t r = 0; r < rows; ++r) {
    for (const int exponent : exponents) {
      bytes.push_back(static_cast<std::byte>(127 + exponent));
      for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<std::byte>(i * 17));
    }
  }
  return bytes;
}

TEST(Linear, mxfp4_rows_whose_scales_spread_too_far_are_bound_for_f8_group_instead_and_say_so) {
  const Format& format = *find_format("mxfp4");
  const std::vector<std::byte> near = mxfp4_blocks(4, {-14, 0}), far = mxfp4_blocks(4, {-15, 0});
  const std::vector<float> x = normal(2 * 64, 4);
  Context context = make_context(1, "", StagedType::f8_row);
  const Linear exact = *Linear::bind(context, "near", format, near.data(), 4, 64);
  EXPECT_EQ(exact.fallback(), "");
  EXPECT_EQ(exact.restaged()->relative_error, 0.0);
  const Linear linear = *Linear::bind(context, "far", format, far.data(), 4, 64);
  EXPECT_EQ(
      linear.fallback(),
      "f8.group instead of f8.row: 32 weights do not move exactly to one power of two per row: scales of a row are "
      "2^15 apart");
  for (const Linear* each : {&exact, &linear}) {
    Activations activations(context, dense_view<const float>(x.data(), 2, 64));
    std::vector<float> y(8);
    ASSERT_TRUE(each->multiply(context, activations, dense_view(y.data(), 2, 4)));
    EXPECT_LE(measure_errors(context, *each, activations, dense_view<const float>(y.data(), 2, 4), 4).kernel, 1e-6);
  }
}

TEST(Context, an_unknown_instruction_set_names_the_known_ones) {
  const Expected<Context> context = Context::create({1, "mmx", {}});
  ASSERT_FALSE(context);
  EXPECT_NE(context.error().message.find("scalar"), std::string::npos) << context.error().message;
}

TEST(Linear, products_of_one_input_together_equal_each_alone) {
  Context context = make_context(2);
  const Format& format = *find_format("q4_0");
  const int64_t cols = 256, rows[] = {40, 7, 96};
  const std::vector<float> x = normal(5 * cols, 11);
  std::vector<Linear> weights;
  for (const int64_t n : rows) {
    const std::vector<std::byte> data = blocks(format, n, cols, static_cast<uint32_t>(n));
    weights.push_back(*Linear::bind(context, "w", format, data.data(), n, cols));
  }
  std::vector<std::vector<float>> together, alone;
  std::vector<MatrixView<float>> outputs;
  for (const int64_t n : rows) {
    together.emplace_back(static_cast<size_t>(5 * n), std::nanf(""));
    alone.emplace_back(static_cast<size_t>(5 * n), std::nanf(""));
    outputs.push_back(dense_view(together.back().data(), 5, n));
  }
  std::vector<float> made(x.size(), std::nanf(""));
  std::vector<int> filled(5, 0);
  Activations input(context, dense_view<const float>(made.data(), 5, cols), [&](int64_t row) {
    ++filled[static_cast<size_t>(row)];
    std::copy_n(x.data() + row * cols, cols, made.data() + row * cols);
  });
  const Linear* const all[] = {&weights[0], &weights[1], &weights[2]};
  ASSERT_TRUE(Linear::multiply(context, all, input, outputs));
  EXPECT_EQ(filled, std::vector<int>(5, 1));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(weights[i].multiply(context, dense_view<const float>(x.data(), 5, cols),
                                    dense_view(alone[i].data(), 5, rows[i])));
    EXPECT_EQ(together[i], alone[i]);
  }
}

TEST(Linear, a_wrong_product_among_several_is_an_error_that_names_it) {
  Context context = make_context(1);
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 8, 64, 1);
  const Linear right = *Linear::bind(context, "right", format, data.data(), 8, 64);
  const Linear wrong = *Linear::bind(context, "wrong", format, data.data(), 8, 32);
  const std::vector<float> x = normal(64, 2);
  std::vector<float> y(8), z(8);
  Activations input(context, dense_view<const float>(x.data(), 1, 64));
  const Linear* const both[] = {&right, &wrong};
  const MatrixView<float> outputs[] = {dense_view(y.data(), 1, 8), dense_view(z.data(), 1, 8)};
  const Status done = Linear::multiply(context, both, input, outputs);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "wrong: wanted 32 input columns, got 64");
}

}  // namespace
}  // namespace octalane
