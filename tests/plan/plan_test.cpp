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

TEST(Plan, tokens_are_rounded_up_to_whole_tiles_when_estimating) {
  // One token costs the gemm six: 6 / 64 against 1 / 16.
  EXPECT_EQ(chosen(tokens(1), {.isas = kBoth}), "bf16_gemv_1x16x32_fast");
  EXPECT_EQ(chosen(tokens(2), {.isas = kBoth}), "bf16_gemm_6x16x32_fast");
}

TEST(Plan, measured_rates_overrule_nominal_ones) {
  const Rate rates[] = {{"bf16_gemm_1x1x32_slow", 9e9}, {"bf16_gemm_6x16x32_fast", 1e9}};
  EXPECT_EQ(chosen(tokens(512), {.isas = kBoth, .rates = rates}), "bf16_gemm_1x1x32_slow");
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
