#include "gate/score.h"

#include <cmath>

#include "gate/gate_testing.h"

namespace octalane {
namespace {

using namespace gate_test;

TEST(Compare, gives_ratio_errors_percentile_and_share_of_equal_tops) {
  PositionScores base, other;
  for (int i = 1; i <= 200; ++i) {
    base.loss.push_back(2.0);
    other.loss.push_back(i % 2 == 0 ? 2.5 : 2.1);  // 0.3 more on average, 0.2 either way
    other.kld.push_back(201 - i);
    other.same_top.push_back(i <= 50 ? 1 : 0);
  }
  const Comparison c = compare(base, other);
  EXPECT_NEAR(c.ppl_ratio, std::exp(0.3), 1e-12);
  EXPECT_NEAR(c.ppl_ratio_error, std::exp(0.3) * 0.2 / std::sqrt(199), 1e-12);
  EXPECT_EQ(c.kld_mean, 100.5);
  EXPECT_NEAR(c.kld_error, std::sqrt((200.0 * 200 - 1) / 12 / 199), 1e-12);
  EXPECT_EQ(c.kld_p99, 198);
  EXPECT_EQ(c.kld_max, 200);
  EXPECT_EQ(c.top1, 0.25);
}

TEST(Compare, what_is_not_finite_stays_so) {
  const PositionScores base{{1, 1}, {}, {}};
  const Comparison c = compare(base, {{1, NAN}, {0, NAN}, {1, 0}});
  EXPECT_TRUE(std::isnan(c.ppl_ratio));
  for (const double value : {c.kld_mean, c.kld_p99, c.kld_max}) EXPECT_TRUE(std::isnan(value));
}

TEST(Scorer, every_window_starts_from_an_empty_cache) {
  Context context = stock_context();
  const Expected<GgufFile> file = tiny::recipe(tiny::variant("llama_tied")).open();
  const Model model = load(context, *file);
  Expected<Scorer> scorer = Scorer::create({&context, &model}, {}, 16);
  ASSERT_TRUE(scorer);
  const std::vector<int32_t> tokens = tiny::tokens(32);
  ASSERT_TRUE(scorer->add_window(std::span(tokens).first(16)));
  ASSERT_TRUE(scorer->add_window(std::span(tokens).last(16)));
  ASSERT_TRUE(scorer->add_window(std::span(tokens).first(16)));
  const std::vector<double>& loss = scorer->base().loss;
  ASSERT_EQ(loss.size(), 3u * 7) << "positions 8 to 14 of 16";
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(loss[i], loss[14 + i]);
  EXPECT_NE(loss[0], loss[7]);
  EXPECT_EQ(scorer->base_logits().size(), 7u * tiny::kVocabulary);
}

TEST(Scorer, kernels_exact_to_the_bit_have_no_noise_floor) {
  Expected<Context> context = Context::create({.threads = 2, .isa = "scalar", .lane = StagedType::bf16});
  ASSERT_TRUE(context);
  const Expected<GgufFile> file = tiny::recipe(tiny::variant("llama_tied")).open();
  const Model model = load(*context, *file);
  EXPECT_EQ(other_batch(16), 7) << "7, 7 and 2 tokens";
  Expected<Scorer> scorer = Scorer::create({&*context, &model}, {{&*context, &model, other_batch(16)}}, 16);
  ASSERT_TRUE(scorer);
  ASSERT_TRUE(scorer->add_window(tiny::tokens(16)));
  const Comparison c = compare(scorer->base(), scorer->other(0));
  EXPECT_EQ(c.ppl_ratio, 1);
  EXPECT_EQ(c.kld_max, 0);
  EXPECT_EQ(c.top1, 1);
}

}  // namespace
}  // namespace octalane
