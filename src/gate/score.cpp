#include "gate/score.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"

namespace octalane {
namespace {

/// log of the sum of exponentials, and the index of the largest value.
struct Normaliser {
  double log_sum = 0;
  int64_t top = 0;
};

Normaliser normaliser(std::span<const float> logits) {
  const auto top = std::ranges::max_element(logits);
  double sum = 0;
  for (const float value : logits) sum += std::exp(double{value} - double{*top});
  return {double{*top} + std::log(sum), top - logits.begin()};
}

/// KL divergence of q from p in nats: sum of p (log p - log q).
double divergence(std::span<const float> p, const Normaliser& of_p, std::span<const float> q, const Normaliser& of_q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - of_p.log_sum;
    sum += std::exp(log_p) * (log_p - (double{q[i]} - of_q.log_sum));
  }
  return sum;
}

}  // namespace

MeanAndError mean_and_error(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count * (count - 1))) : NAN};
}

Comparison compare(const PositionScores& base, const PositionScores& other) {
  std::vector<double> differences(base.loss.size());
  for (size_t i = 0; i < differences.size(); ++i) differences[i] = other.loss[i] - base.loss[i];
  const MeanAndError difference = mean_and_error(differences), kld = mean_and_error(other.kld);
  Comparison out{.ppl_ratio = std::exp(difference.mean),
                 .ppl_ratio_error = std::exp(difference.mean) * difference.error,
                 .kld_mean = kld.mean,
                 .kld_error = kld.error};
  const auto count = static_cast<double>(other.kld.size());
  out.top1 = static_cast<double>(std::ranges::count(other.same_top, 1)) / count;
  if (std::isnan(kld.mean)) {  // values that do not compare have no order
    out.kld_p99 = out.kld_max = NAN;
    return out;
  }
  std::vector<double> sorted = other.kld;
  std::ranges::sort(sorted);
  out.kld_p99 = sorted[static_cast<size_t>(std::ceil(0.99 * count)) - 1];
  out.kld_max = sorted.back();
  return out;
}

int64_t other_batch(int64_t context) { return std::max<int64_t>(1, context / 2 - 1); }

Scorer::Scorer(std::vector<Scored> models, KvCache cache, int64_t window)
    : models_(std::move(models)),
      cache_(std::move(cache)),
      window_(window),
      first_(window / 2),
      vocabulary_(models_[0].model->config().vocabulary),
      logits_(static_cast<size_t>((window - first_) * vocabulary_)),
      other_logits_(models_.size() > 1 ? logits_.size() : 0),
      scores_(models_.size()) {}

Expected<Scorer> Scorer::create(Scored base, std::vector<Scored> others, int64_t window) {
  Expected<KvCache> cache = KvCache::create(base.model->config(), window);
  if (!cache) return fail_with(cache);
  others.insert(others.begin(), base);
  return Scorer(std::move(others), std::move(*cache), window);
}

Status Scorer::add_window(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < models_.size(); ++i) {
    std::vector<float>& logits = i == 0 ? logits_ : other_logits_;
    if (const Status done = forward(models_[i], tokens, logits); !done) return done;
    score(i, tokens, logits);
  }
  return {};
}

Status Scorer::forward(const Scored& scored, std::span<const int32_t> tokens, std::vector<float>& logits) {
  cache_.truncate(0);
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < size; begin += scored.batch) {
    const int64_t end = std::min(size, begin + scored.batch);
    const int64_t from = std::clamp(first_, begin, end);
    float* out = logits.data() + std::max<int64_t>(0, from - first_) * vocabulary_;
    const std::span<const int32_t> part = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    const Status done = scored.model->forward(*scored.context, part, cache_, dense_view(out, end - from, vocabulary_));
    if (!done) return done;
  }
  return {};
}

void Scorer::score(size_t model, std::span<const int32_t> tokens, const std::vector<float>& logits) {
  PositionScores& scores = scores_[model];
  const size_t before = scores.loss.size(), count = static_cast<size_t>(scored());
  scores.loss.resize(before + count);
  if (model > 0) {
    scores.kld.resize(before + count);
    scores.same_top.resize(before + count);
  }
  parallel_for(models_[model].context->threads(), scored(), 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto at = before + static_cast<size_t>(row);
      const auto next = static_cast<size_t>(tokens[static_cast<size_t>(first_ + row + 1)]);
      const auto row_of = [&](const std::vector<float>& all) {
        return std::span(all).subspan(static_cast<size_t>(row * vocabulary_), static_cast<size_t>(vocabulary_));
      };
      const std::span<const float> q = row_of(logits);
      const Normaliser of_q = normaliser(q);
      scores.loss[at] = of_q.log_sum - double{q[next]};
      if (model == 0) continue;
      const std::span<const float> p = row_of(logits_);
      const Normaliser of_p = normaliser(p);
      scores.kld[at] = divergence(p, of_p, q, of_q);
      scores.same_top[at] = of_p.top == of_q.top ? 1 : 0;
    }
  });
}

}  // namespace octalane
