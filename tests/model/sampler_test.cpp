#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/tokenizer_golden.h"

namespace octalane {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// No filters: every token takes part.
constexpr SamplerOptions unfiltered(float temperature, uint64_t seed = 0) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}

int32_t sample_once(const SamplerOptions& options, const std::vector<float>& logits) {
  return Sampler(options).sample(logits);
}

TEST(Sampler, greedy_takes_the_best_and_of_equals_the_first) {
  EXPECT_EQ(sample_once({}, {0.5f, 2.0f, 1.0f}), 1);
  EXPECT_EQ(sample_once({}, {-3.0f, -1.0f, -1.0f, -1.0f}), 1);
  EXPECT_EQ(sample_once({.temperature = -1}, {0.5f, 2.0f, 1.0f}), 1);
  EXPECT_EQ(sample_once({.temperature = kNan}, {0.5f, 2.0f, 1.0f}), 1);
}

TEST(Sampler, no_logits_give_no_token) {
  EXPECT_EQ(sample_once({}, {}), -1);
  EXPECT_EQ(sample_once({.temperature = 1}, {}), -1);
}

TEST(Sampler, nan_and_infinite_logits_never_win_against_numbers) {
  for (const float temperature : {0.0f, 0.7f, 1e-30f}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const SamplerOptions options = unfiltered(temperature, seed);
      EXPECT_EQ(sample_once(options, {kNan, -kInfinity, -5.0f, kNan}), 2);
      EXPECT_EQ(sample_once(options, {1.0f, kInfinity, kNan}), 1);
    }
    EXPECT_EQ(sample_once({.temperature = temperature}, {kNan, 1.0f, kNan}), 1);
  }
  for (const auto& logits : {std::vector<float>{kNan, kNan}, {-kInfinity, kNan}, {kInfinity, kInfinity}}) {
    const int32_t token = sample_once(unfiltered(1), logits);
    EXPECT_TRUE(token == 0 || token == 1);
    EXPECT_EQ(sample_once({}, logits), 0);
  }
}

TEST(Sampler, filters_keep_what_numpy_keeps) {
  const auto golden = golden::read_json(golden::kFolder + "sampler.json");
  ASSERT_GE(golden["cases"].size(), 40u);
  for (const auto& each : golden["cases"]) {
    const std::vector<float> logits = golden["logits"][each["logits"].get<size_t>()];
    // The temperature comes after the filters and changes nothing of what they keep.
    Sampler sampler({.temperature = 3.0f, .top_k = each["top_k"], .top_p = each["top_p"], .min_p = each["min_p"]});
    std::vector<int32_t> kept;
    for (const auto& [logit, token] : sampler.filter(logits)) {
      EXPECT_EQ(logit, logits[token]);
      kept.push_back(token);
    }
    EXPECT_EQ(golden::json(kept), each["kept"]) << each;
  }
}

TEST(Sampler, every_drawn_token_passed_the_filters) {
  const auto golden = golden::read_json(golden::kFolder + "sampler.json");
  for (const auto& each : golden["cases"]) {
    const std::vector<float> logits = golden["logits"][each["logits"].get<size_t>()];
    Sampler sampler({.temperature = 2.0f, .top_k = each["top_k"], .top_p = each["top_p"], .min_p = each["min_p"]});
    const std::vector<int32_t> kept = each["kept"];
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(std::count(kept.begin(), kept.end(), sampler.sample(logits))) << each;
  }
}

/// Pearson's statistic of 100,000 samples of `logits` against softmax(claimed / temperature).
double chi_squared(const std::vector<float>& logits, const std::vector<float>& claimed, float temperature) {
  constexpr int kDraws = 100'000;
  Sampler sampler(unfiltered(temperature, 42));
  std::vector<double> counts(logits.size()), weights(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
  double total = 0, sum = 0;
  for (size_t i = 0; i < claimed.size(); ++i) total += weights[i] = std::exp(double{claimed[i]} / temperature);
  for (size_t i = 0; i < claimed.size(); ++i) {
    const double wanted = weights[i] / total * kDraws;
    sum += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
  }
  return sum;
}

TEST(Sampler, frequencies_are_the_softmax_at_the_temperature) {
  // 99.9 % of honest samples stay below 24.3 at 7 degrees of freedom; logits that are off by 3 % do not.
  const std::vector<float> logits = {1.5f, -0.25f, 0.0f, 2.0f, 0.75f, -1.0f, 1.0f, 0.5f};
  std::vector<float> flatter = logits;
  for (float& logit : flatter) logit *= 0.97f;
  for (const float temperature : {0.5f, 1.0f, 2.0f}) EXPECT_LT(chi_squared(logits, logits, temperature), 24.3);
  for (const float temperature : {0.5f, 1.0f}) EXPECT_GT(chi_squared(flatter, logits, temperature), 24.3);
}

TEST(Sampler, a_draw_is_the_upper_53_bits_of_the_generator) {
  const std::vector<float> equal(1024, 0.0f);
  Sampler sampler(unfiltered(1.0f, 99));
  std::mt19937_64 generator(99);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(sampler.sample(equal), static_cast<int32_t>(generator() >> 54));
}

TEST(Sampler, a_seed_gives_the_same_tokens_again_and_another_seed_others) {
  const std::vector<float> logits = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f};
  const auto draw = [&](uint64_t seed) {
    Sampler sampler(unfiltered(1.0f, seed));
    std::vector<int32_t> tokens;
    for (int i = 0; i < 100; ++i) tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
}

TEST(Sampler, a_vocabulary_of_a_real_size_is_sampled) {
  std::vector<float> logits(151'936);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 2654435761u) % 1000) / 100;
  Sampler sampler({.temperature = 0.8f, .top_k = 40, .top_p = 1, .min_p = 0});
  EXPECT_EQ(sampler.filter(logits).size(), 40u);
  EXPECT_EQ(sampler.filter(logits).front().first, 9.99f);
}

}  // namespace
}  // namespace octalane
