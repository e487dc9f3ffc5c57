#include "plan/plan.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"

namespace octalane {
namespace {

// A machine that exists only here: two instruction sets, three kernels on the faster one.
std::string any(const Problem&) { return {}; }
std::string no_floats(const Problem& problem) { return problem.weights.code.is_float() ? "weights are floats" : ""; }
int64_t no_scratch(const Problem&) { return 0; }
std::string here() { return {}; }

Kernel kernel(StagedType staged, Op op, const char* isa, TileShape tile, TileOrder order, double rate,
              int64_t max_tokens = INT64_MAX) {
  Kernel k;
  k.staged = staged;
  k.op = op;
  k.isa = isa;
  k.tile = tile;
  k.order = order;
  k.instruction = "test";
  k.nominal_ops_per_clock = rate;
  k.max_tokens = max_tokens;
  k.supports = info(staged).lane == Lane::s8 ? no_floats : any;
  k.scratch_bytes = no_scratch;
  return k;
}

const Kernel kSlow[] = {kernel(StagedType::bf16, Op::gemm, "slow", {1, 1, 32}, {1}, 2)};
const Kernel kFast[] = {kernel(StagedType::bf16, Op::gemm, "fast", {6, 16, 32}, {16}, 64),
                        kernel(StagedType::bf16, Op::gemv, "fast", {1, 16, 32}, {16}, 16, 4),
                        kernel(StagedType::s8_group, Op::gemm, "fast", {4, 16, 32}, {16}, 128)};
const IsaTable kSlowIsa{.name = "slow", .unavailable = here, .kernels = kSlow};
const IsaTable kFastIsa{.name = "fast", .unavailable = here, .kernels = kFast};
const IsaTable* const kBoth[] = {&kSlowIsa, &kFastIsa};
const IsaTable* const kOnlySlow[] = {&kSlowIsa};

constexpr WeightSpec kQ4{{CodeMap::offset, 4, 8, {}}, {ScaleType::f16, 32, 0, false}};
constexpr WeightSpec kBf16{{CodeMap::bf16, 16, 0, {}}, {}};

Problem tokens(int64_t m, WeightSpec spec = kQ4) { return {m, 64, 64, spec, {}}; }
std::string chosen(const Problem& problem, const PlanInputs& inputs) {
  const Choice choice = choose_kernel(problem, inputs);
  return choice.kernel == nullptr ? "none" : name(*choice.kernel);
}

TEST(Plan, without_a_lane_only_the_stock_one_is_allowed) {
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth}), "bf16_gemm_6x16x32_fast");
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .lane = StagedType::s8_group}), "s8.group_gemm_4x16x32_fast");
}

TEST(Plan, a_lossy_lane_that_is_allowed_competes_with_the_stock_one) {
  const PlanInputs allowed{.isas = kBoth, .allowed = {StagedType::s8_group}};
  EXPECT_EQ(chosen(tokens(512), allowed), "s8.group_gemm_4x16x32_fast");
  Rates rates;
  for (const Kernel* kernel : {&kSlow[0], &kFast[0], &kFast[1]}) rates.set({kernel, kQ4, {{1, 1e-9}}});
  rates.set({&kFast[2], kQ4, {{1, 2e-9}, {4, 2e-9}}});
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth, .rates = &rates, .allowed = {StagedType::s8_group}}),
            "bf16_gemv_1x16x32_fast")
      << "where it is faster, the stock one stays";
  EXPECT_EQ(chosen(tokens(512, kBf16), allowed), "bf16_gemm_6x16x32_fast") << "and where the other cannot serve";
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .allowed = {StagedType::s8_row}}), "bf16_gemm_6x16x32_fast");
  const PlanInputs off{.isas = kBoth, .lane = StagedType::bf16, .allowed = {StagedType::s8_group}};
  EXPECT_EQ(chosen(tokens(512), off), "bf16_gemm_6x16x32_fast") << "a lane by name is that lane";
}

TEST(Plan, a_lossy_lane_that_nothing_allows_says_so) {
  const Expected<Plan> plan = make_plan(tokens(8), {.isas = kBoth});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->refused[2].why, "lossy: no gate receipt allows it (--lane s8.group forces it)");
}

TEST(Plan, tokens_are_rounded_up_to_whole_tiles_when_estimating) {
  // One token costs the gemm six: 6 / 64 against 1 / 16.
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth}), "bf16_gemv_1x16x32_fast");
  EXPECT_EQ(chosen(tokens(2), {.isas = kBoth}), "bf16_gemm_6x16x32_fast");
}

const Kernel& kSlowGemm = kSlow[0];
const Kernel& kFastGemm = kFast[0];
const Kernel& kFastGemv = kFast[1];

/// Costs of the three bf16 kernels, in seconds per weight.
Rates rates_of(std::vector<RatePoint> slow, std::vector<RatePoint> gemm, std::vector<RatePoint> gemv) {
  Rates rates;
  rates.set({&kFastGemv, kQ4, std::move(gemv)});
  rates.set({&kSlowGemm, kQ4, std::move(slow)});
  rates.set({&kFastGemm, kQ4, std::move(gemm)});
  return rates;
}

/// The fewest tokens from which on the gemm is chosen, up to the gemv's four.
int64_t crossover(const Rates& rates) {
  for (int64_t m = 1; m <= 4; ++m) {
    if (choose_kernel(tokens(m), {.isas = kBoth, .rates = &rates}).kernel == &kFastGemm) return m;
  }
  return 5;
}

TEST(Plan, measured_rates_overrule_nominal_ones) {
  const Rates rates = rates_of({{1, 1e-9}}, {{1, 2e-9}, {512, 1e-6}}, {{1, 3e-9}});
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth, .rates = &rates}), "bf16_gemm_1x1x32_slow");
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .rates = &rates}), "bf16_gemm_1x1x32_slow");
}

TEST(Plan, the_crossover_moves_with_the_rates) {
  const std::vector<RatePoint> never{{1, 1}};
  const std::vector<RatePoint> gemv{{1, 1e-9}, {2, 2e-9}, {4, 4e-9}};
  EXPECT_EQ(crossover(rates_of(never, {{1, 0.5e-9}, {8, 0.5e-9}}, gemv)), 1);
  EXPECT_EQ(crossover(rates_of(never, {{1, 1.5e-9}, {8, 1.5e-9}}, gemv)), 2);
  EXPECT_EQ(crossover(rates_of(never, {{1, 3.5e-9}, {8, 3.5e-9}}, gemv)), 4);
  EXPECT_EQ(crossover(rates_of(never, {{1, 9e-9}, {8, 9e-9}}, gemv)), 5);
  EXPECT_EQ(crossover(rates_of(never, {{1, 3.5e-9}, {8, 3.5e-9}}, {{1, 7e-9}})), 1) << "the gemv became slow";
}

TEST(Plan, costs_between_points_are_interpolated_for_whole_tiles) {
  const KernelRate rate{&kFastGemm, kQ4, {{1, 1}, {8, 8}, {32, 80}}};  // tiles of six tokens
  EXPECT_EQ(seconds_per_weight(rate, 1), 1) << "a measured point counts as it is";
  EXPECT_EQ(seconds_per_weight(rate, 2), 6) << "two tokens cost six";
  EXPECT_EQ(seconds_per_weight(rate, 7), 8) << "twelve, but no more than the next point";
  EXPECT_EQ(seconds_per_weight(rate, 8), 8);
  EXPECT_EQ(seconds_per_weight(rate, 9), 8 + 72 * 4 / 24.0);
  EXPECT_EQ(seconds_per_weight(rate, 32), 80);
  EXPECT_EQ(seconds_per_weight(rate, 60), 80 * 60 / 32.0) << "in proportion beyond the last point";
  EXPECT_EQ(seconds_per_weight(rate, 61), 80 * 66 / 32.0);
}

TEST(Plan, one_kernel_without_a_rate_and_the_nominal_ones_decide) {
  Rates rates;
  rates.set({&kSlowGemm, kQ4, {{1, 1e-12}}});
  rates.set({&kFastGemm, kQ4, {{1, 1e-9}}});
  const Expected<Plan> plan = make_plan(tokens(1), {.isas = kBoth, .rates = &rates});
  ASSERT_TRUE(plan);
  EXPECT_EQ(name(*plan->choice.kernel), "bf16_gemv_1x16x32_fast");
  EXPECT_NE(plan->reason.find("nominal"), std::string::npos) << plan->reason;
  EXPECT_FALSE(plan->seconds);
  rates.set({&kFastGemv, kBf16, {{1, 1e-9}}});
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth, .rates = &rates}), "bf16_gemv_1x16x32_fast") << "of other weights";
  rates.set({&kFastGemv, kQ4, {{1, 1e-9}}});
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth, .rates = &rates}), "bf16_gemm_1x1x32_slow");
}

TEST(Plan, of_equal_estimates_the_last_wins_each_time) {
  const Rates rates = rates_of({{1, 1e-9}}, {{1, 1e-9}}, {{1, 1e-9}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chosen(tokens(1), {.isas = kBoth, .rates = &rates}), "bf16_gemv_1x16x32_fast");
}

TEST(Plan, says_how_long_and_by_which_factor_the_others_lost) {
  const Rates rates = rates_of({{1, 5e-9}}, {{1, 1e-9}}, {{1, 2e-9}});
  const Expected<Plan> plan = make_plan(tokens(1), {.isas = kBoth, .rates = &rates});
  ASSERT_TRUE(plan);
  EXPECT_EQ(*plan->seconds, 64 * 64 * 1e-9);
  EXPECT_NE(plan->reason.find("measured"), std::string::npos) << plan->reason;
  EXPECT_EQ(plan->refused[0].why, "estimated 5.00x the time of the winner");
  EXPECT_EQ(plan->refused[1].why, "estimated 2.00x the time of the winner");
}

TEST(Plan, a_kernel_asked_for_is_the_only_one) {
  EXPECT_EQ(chosen(tokens(2), {.isas = kBoth, .kernel = &kFastGemv}), "bf16_gemv_1x16x32_fast");
  const Expected<Plan> plan = make_plan(tokens(8), {.isas = kBoth, .kernel = &kFastGemv});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("bf16_gemm_6x16x32_fast: bf16_gemv_1x16x32_fast was asked for"),
            std::string::npos)
      << plan.error().message;
}

TEST(Rates, keep_one_entry_for_each_kernel_and_weights) {
  Rates rates;
  rates.set({&kFastGemm, kQ4, {{1, 1}}});
  rates.set({&kFastGemm, kBf16, {{1, 2}}});
  rates.set({&kFastGemm, kQ4, {{1, 3}}});
  ASSERT_EQ(rates.all().size(), 2u);
  EXPECT_EQ(rates.find(kFastGemm, kQ4)->points[0].seconds_per_weight, 3);
  EXPECT_EQ(rates.find(kFastGemm, kBf16)->points[0].seconds_per_weight, 2);
  EXPECT_EQ(rates.find(kFastGemv, kQ4), nullptr);
}

TEST(Plan, packed_weights_bind_to_kernels_of_their_tile_order) {
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .order = TileOrder{1}}), "bf16_gemm_1x1x32_slow");
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .order = TileOrder{4}}), "none");
}

TEST(Plan, every_loser_has_its_reason) {
  const Expected<Plan> plan = make_plan(tokens(8), {.isas = kBoth});
  ASSERT_TRUE(plan);
  EXPECT_EQ(name(*plan->choice.kernel), "bf16_gemm_6x16x32_fast");
  EXPECT_EQ(plan->choice.isa, &kFastIsa);
  ASSERT_EQ(plan->refused.size(), 3u);
  EXPECT_EQ(plan->refused[0].kernel, "bf16_gemm_1x1x32_slow");
  EXPECT_EQ(plan->refused[0].why, "estimated 21.33x the time of the winner");  // (8 / 2) / (12 / 64)
  EXPECT_EQ(plan->refused[1].why, "serves at most 4 tokens, got 8");
  EXPECT_NE(plan->refused[2].why.find("lossy"), std::string::npos) << plan->refused[2].why;
}

TEST(Plan, a_forced_lane_that_cannot_serve_says_what_each_kernel_lacked) {
  const Expected<Plan> plan = make_plan(tokens(8, kBf16), {.isas = kBoth, .lane = StagedType::s8_group});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("s8.group_gemm_4x16x32_fast: weights are floats"), std::string::npos)
      << plan.error().message;
  EXPECT_FALSE(make_plan(tokens(8), {.isas = kOnlySlow, .lane = StagedType::s8_row}));
}

}  // namespace
}  // namespace octalane
