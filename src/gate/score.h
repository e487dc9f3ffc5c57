// How a text is scored, and how far one way to compute a model is from another.
//
// The rule is llama.cpp's llama-perplexity: the text is cut into windows of `context` tokens, each run from an empty
// cache (its first token replaced by the begin token where the model wants one), and the second half of each window is
// scored: positions context / 2 .. context - 2 predict the token after them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace octalane {

/// Per scored position; kld and same_top against the base, empty for the base itself.
struct PositionScores {
  std::vector<double> loss;    ///< -log p of the token that follows, nats
  std::vector<double> kld;     ///< KL divergence from the base's prediction, nats
  std::vector<char> same_top;  ///< 1 when the likeliest token is the base's
};

struct MeanAndError {
  double mean = 0;
  double error = 0;  ///< standard error of the mean; NaN for a single value
};
MeanAndError mean_and_error(std::span<const double> values);

/// Scores against those of a base, paired position by position. Not finite where a prediction was not.
struct Comparison {
  double ppl_ratio = 1, ppl_ratio_error = 0;  ///< perplexity over the base's
  double kld_mean = 0, kld_error = 0, kld_p99 = 0, kld_max = 0;
  double top1 = 1;  ///< share of positions with the same likeliest token
};
/// Precondition: at least one position.
Comparison compare(const PositionScores& base, const PositionScores& other);

/// A model as it is to be scored. Several may share a context.
struct Scored {
  Context* context = nullptr;
  const Model* model = nullptr;
  int64_t batch = 512;  ///< tokens per call
};

/// Tokens per call that split a window other than the default does, with a rest of few tokens: whatever differs then is
/// no lane's doing.
int64_t other_batch(int64_t context);

/// Runs windows through a base and, in turn, through others.
class Scorer {
 public:
  /// Models and contexts must outlive it; the models are of one configuration. Fails when there is no memory for a
  /// cache of `context` positions.
  static Expected<Scorer> create(Scored base, std::vector<Scored> others, int64_t window);

  /// `tokens` has one window.
  Status add_window(std::span<const int32_t> tokens);

  const PositionScores& base() const { return scores_[0]; }
  const PositionScores& other(size_t i) const { return scores_[i + 1]; }
  /// The base's logits of the positions scored last, [positions, vocabulary].
  std::span<const float> base_logits() const { return {logits_.data(), static_cast<size_t>(scored() * vocabulary_)}; }

 private:
  Scorer(std::vector<Scored> models, KvCache cache, int64_t window);
  int64_t scored() const { return window_ - first_ - 1; }
  Status forward(const Scored& scored, std::span<const int32_t> tokens, std::vector<float>& logits);
  void score(size_t model, std::span<const int32_t> tokens, const std::vector<float>& logits);

  std::vector<Scored> models_;
  KvCache cache_;
  int64_t window_, first_, vocabulary_;
  std::vector<float> logits_, other_logits_;  // of scored positions, and of the one that predicts beyond the window
  std::vector<PositionScores> scores_;
};

}  // namespace octalane
