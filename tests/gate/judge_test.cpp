#include "gate/judge.h"

#include <algorithm>
#include <cmath>

#include "gate/gate_testing.h"
#include "gate/receipt.h"

namespace octalane {
namespace {

using namespace gate_test;

TEST(Verdict, each_figure_counts_by_its_own_worst_text) {
  const Comparison texts[] = {{.ppl_ratio = 1.02, .kld_mean = 0.001, .kld_max = 1, .top1 = 0.99},
                              {.ppl_ratio = 0.99, .kld_mean = 0.03, .kld_max = 0.5, .top1 = 0.98}};
  const Comparison worst = worst_of(texts);
  EXPECT_EQ(worst.ppl_ratio, 1.02);
  EXPECT_EQ(worst.kld_mean, 0.03);
  EXPECT_EQ(worst.kld_max, 1);
  EXPECT_EQ(worst.top1, 0.98);
  const Comparison spoiled[] = {{.kld_mean = 1}, {.kld_mean = NAN}, {.kld_mean = 2}};
  EXPECT_TRUE(std::isnan(worst_of(spoiled).kld_mean));
}

TEST(Verdict, every_threshold_can_fail_and_says_so) {
  const Thresholds t;
  EXPECT_EQ(why_fails({.ppl_ratio = 1.01, .kld_mean = 0.02, .top1 = 0.97}, t), "") << "the bounds themselves pass";
  EXPECT_EQ(why_fails({.ppl_ratio = 1.02}, t), "perplexity ratio 1.020000, wanted at most 1.01");
  EXPECT_EQ(why_fails({.kld_mean = 0.021}, t), "mean KL divergence 0.021000, wanted at most 0.02");
  EXPECT_EQ(why_fails({.top1 = 0.9699}, t), "same top token 0.9699, wanted at least 0.97");
  EXPECT_NE(why_fails({.ppl_ratio = NAN}, t), "");
  EXPECT_NE(why_fails({.kld_mean = NAN}, t), "");
  EXPECT_NE(why_fails({.top1 = NAN}, t), "");
  EXPECT_NE(why_fails({.ppl_ratio = INFINITY}, t), "");
}

/// A model of four-bit matrices in the stock lane, and a judge of it.
struct Judged {
  explicit Judged(const tiny::Recipe& recipe, int64_t tokens = 64) : file(recipe.open()) {
    judge.emplace(context, model, std::vector<Text>{text(tokens)}, 32, go_on);
  }
  Comparison figures(const Model& candidate) const {
    const Expected<std::vector<Comparison>> texts = judge->compare_one(candidate);
    EXPECT_TRUE(texts) << texts.error().message;
    return worst_of(*texts);
  }
  Model in_lane(StagedType lane, const std::set<std::string>& stock = {}) {
    Expected<Model> other = with_lane(context, model, lane, stock);
    EXPECT_TRUE(other) << other.error().message;
    return std::move(*other);
  }

  Expected<GgufFile> file;
  Context context = stock_context();
  Model model = load(context, *file);
  std::optional<Judge> judge;
};

std::vector<float> logits(Context& context, const Model& model) {
  Expected<KvCache> cache = KvCache::create(model.config(), tiny::kTokens);
  std::vector<float> out(static_cast<size_t>(tiny::kTokens * tiny::kVocabulary));
  const Status done =
      model.forward(context, tiny::tokens(), *cache, dense_view(out.data(), tiny::kTokens, tiny::kVocabulary));
  EXPECT_TRUE(done) << done.error().message;
  return out;
}

TEST(Lanes, a_model_that_changes_lanes_equals_one_loaded_for_them) {
  for (const StagedType lane : {StagedType::s8_group, StagedType::s8_row, StagedType::s8_block}) {
    Judged judged(four_bit_recipe());
    const std::vector<float> stock = logits(judged.context, judged.model);
    Expected<Context> forced = Context::create({.threads = 2, .isa = {}, .lane = lane});
    const Model loaded = load(*forced, *judged.file);
    const std::vector<float> changed = logits(judged.context, judged.in_lane(lane));
    EXPECT_EQ(changed, logits(*forced, loaded)) << name(lane);
    EXPECT_NE(changed, stock) << name(lane);
    EXPECT_EQ(logits(judged.context, judged.model), stock) << "the model itself stays";
    const Expected<Model> back = with_lane(judged.context, loaded, StagedType::bf16, {});
    ASSERT_TRUE(back);
    EXPECT_EQ(logits(judged.context, *back), stock) << "and back";
  }
}

TEST(Lanes, tensors_that_a_lane_cannot_serve_are_named_with_the_reason) {
  Judged judged(tiny::recipe(tiny::variant("llama_untied")));
  const std::vector<KeptStock> kept = not_served(judged.context, judged.model, StagedType::s8_row);
  ASSERT_EQ(kept.size(), judged.model.linears().size()) << "codes of eight bits";
  EXPECT_EQ(kept[0].tensor, "blk.0.attn_q.weight");
  EXPECT_NE(kept[0].why.find("codes of 8 bits"), std::string::npos) << kept[0].why;
  EXPECT_TRUE(not_served(judged.context, judged.model, StagedType::s8_group).empty());
  EXPECT_NE(not_served(judged.context, judged.model, StagedType::f8_row)[0].why.find("no f8 lane"), std::string::npos);
}

TEST(Lanes, tensors_that_would_fall_back_to_another_lane_are_named_too) {
  tiny::Recipe recipe = four_bit_recipe();
  std::vector<std::byte>& bytes = recipe.tensor("blk.1.attn_v.weight").bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 18 >= 2) bytes[i] = std::byte{0xEF};  // levels 6 and 7
  }
  Judged judged(recipe);
  const std::vector<KeptStock> kept = not_served(judged.context, judged.model, StagedType::s8_row);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].tensor, "blk.1.attn_v.weight");
  EXPECT_NE(kept[0].why.find("share a sign"), std::string::npos) << kept[0].why;
  EXPECT_TRUE(not_served(judged.context, judged.model, StagedType::s8_group).empty());
}

TEST(Lanes, groups_are_tensors_or_blocks_without_what_is_not_served) {
  Judged judged(four_bit_recipe());
  const std::vector<KeptStock> kept{{"blk.1.attn_k.weight", "why"}};
  EXPECT_EQ(tensor_groups(judged.model, kept, GroupBy::tensor).size(), 14u);
  const std::vector<TensorGroup> blocks = tensor_groups(judged.model, kept, GroupBy::block);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].name, "blk.0");
  EXPECT_EQ(blocks[0].tensors.size(), 7u);
  EXPECT_EQ(blocks[1].tensors.size(), 6u);
  EXPECT_EQ(blocks[2].name, "output.weight");
}

TEST(Judge, one_channel_a_thousand_times_the_others_fails_int8_per_row) {
  const Thresholds t;
  Judged plain(four_bit_recipe()), outlier(outlier_recipe());
  const Comparison calm = plain.figures(plain.in_lane(StagedType::s8_row));
  const Comparison wild = outlier.figures(outlier.in_lane(StagedType::s8_row));
  EXPECT_LE(calm.kld_mean, t.max_kld) << "without the outlier it would do";
  const std::string why = why_fails(wild, t);
  EXPECT_NE(why.find("KL divergence"), std::string::npos) << why << ", divergence " << wild.kld_mean;
  EXPECT_GT(wild.kld_mean, 10 * calm.kld_mean);
  Receipt receipt;
  receipt.texts = {{"text", "hash", 64, 30}};
  receipt.lanes = {{StagedType::s8_row, {wild}, {}, 15, why}};
  EXPECT_EQ(verdict(receipt.lanes[0]), "fail");
  EXPECT_NE(receipt_text(receipt).find(why), std::string::npos);
  EXPECT_TRUE(grants_of(receipt).empty());
}

TEST(Judge, tensors_alone_cost_less_than_all_together) {
  Judged judged(four_bit_recipe());
  const std::vector<TensorGroup> groups = tensor_groups(judged.model, {}, GroupBy::block);
  const Expected<std::vector<Comparison>> alone = judged.judge->alone(StagedType::s8_row, groups);
  ASSERT_TRUE(alone);
  ASSERT_EQ(alone->size(), 3u);
  const double all = judged.figures(judged.in_lane(StagedType::s8_row)).kld_mean;
  for (const Comparison& one : *alone) {
    EXPECT_GT(one.kld_mean, 0);
    EXPECT_LT(one.kld_mean, all);
  }
}

TEST(Mixed, keeps_the_fewest_of_the_most_hurtful_groups) {
  Judged judged(four_bit_recipe());
  std::vector<TensorGroup> order = tensor_groups(judged.model, {}, GroupBy::tensor);
  const Expected<std::vector<Comparison>> alone = judged.judge->alone(StagedType::s8_row, order);
  ASSERT_TRUE(alone);
  std::vector<size_t> places(order.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::ranges::sort(places, std::ranges::greater(), [&](size_t i) { return (*alone)[i].kld_mean; });
  std::vector<TensorGroup> sorted;
  for (const size_t i : places) sorted.push_back(order[i]);

  Thresholds half{.max_ppl_ratio = 100, .max_kld = 0, .min_top1 = 0};
  half.max_kld = judged.figures(judged.in_lane(StagedType::s8_row)).kld_mean / 2;
  const Expected<MixedPlan> plan =
      find_mixed(judged.context, judged.model, *judged.judge, StagedType::s8_row, {}, sorted, half);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_FALSE(plan->stock.empty());
  ASSERT_LT(plan->stock.size(), sorted.size());
  for (size_t i = 0; i < plan->stock.size(); ++i) EXPECT_EQ(plan->stock[i], sorted[i].tensors[0]);
  const auto with_stock = [&](size_t count) {
    return judged.figures(
        judged.in_lane(StagedType::s8_row, {plan->stock.begin(), plan->stock.begin() + static_cast<ptrdiff_t>(count)}));
  };
  EXPECT_EQ(why_fails(with_stock(plan->stock.size()), half), "");
  EXPECT_EQ(with_stock(plan->stock.size()).kld_mean, worst_of(plan->texts).kld_mean);
  EXPECT_NE(why_fails(with_stock(plan->stock.size() - 1), half), "") << "one less would not do";
}

TEST(Mixed, a_lane_that_passes_for_no_group_keeps_them_all) {
  Judged judged(four_bit_recipe());
  const std::vector<TensorGroup> order = tensor_groups(judged.model, {}, GroupBy::block);
  const Thresholds none{.max_ppl_ratio = 0, .max_kld = 0, .min_top1 = 1};
  const Expected<MixedPlan> plan =
      find_mixed(judged.context, judged.model, *judged.judge, StagedType::s8_row, {}, order, none);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->texts.empty());
  EXPECT_EQ(plan->stock.size(), judged.model.linears().size());
}

TEST(Judge, stops_when_it_is_asked_to) {
  Judged judged(four_bit_recipe());
  const Judge stopped(judged.context, judged.model, {text(64)}, 32, [](int64_t done, int64_t) { return done < 1; });
  const Expected<std::vector<Comparison>> noise = stopped.noise_floor();
  ASSERT_FALSE(noise);
  EXPECT_EQ(noise.error().message, "interrupted");
}

}  // namespace
}  // namespace octalane
