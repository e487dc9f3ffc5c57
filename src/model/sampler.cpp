#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octalane {

namespace {

using Candidate = std::pair<float, int32_t>;  // logit, token

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

/// exp((x - max) / temperature) for x <= max, also where the difference of infinities is no number.
double weight(float x, float max, double temperature) {
  if (x == max) return 1.0;
  if (std::isinf(x)) return 0.0;
  return std::exp((static_cast<double>(x) - max) / temperature);
}

/// In [0, 1), from the generator's bits: the distributions of <random> differ between libraries.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

/// The shortest head of the ranked candidates with at least the share `top_p` of their probability.
size_t nucleus(const std::vector<Candidate>& ranked, double top_p) {
  double total = 0;
  for (const Candidate& each : ranked) total += weight(each.first, ranked.front().first, 1.0);
  double sum = 0;
  for (size_t i = 0; i < ranked.size(); ++i) {
    sum += weight(ranked[i].first, ranked.front().first, 1.0);
    if (sum >= top_p * total) return i + 1;
  }
  return ranked.size();
}

}  // namespace

std::span<const std::pair<float, int32_t>> Sampler::filter(std::span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates_.emplace_back(logit, static_cast<int32_t>(i));
  }
  if (candidates_.empty()) return candidates_;

  const bool greedy = !(options_.temperature > 0);
  size_t kept = candidates_.size();
  if (greedy) {
    kept = 1;
  } else if (options_.top_k > 0) {
    kept = std::min(kept, static_cast<size_t>(options_.top_k));
  }
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(),
                    ranks_before);
  candidates_.resize(kept);
  if (options_.top_p < 1) candidates_.resize(nucleus(candidates_, options_.top_p));
  if (options_.min_p > 0) {
    const float max = candidates_.front().first;
    const auto end = std::find_if(candidates_.begin() + 1, candidates_.end(), [&](const Candidate& each) {
      return weight(each.first, max, 1.0) < static_cast<double>(options_.min_p);
    });
    candidates_.erase(end, candidates_.end());
  }
  return candidates_;
}

int32_t Sampler::sample(std::span<const float> logits) {
  const auto kept = filter(logits);
  if (kept.empty()) return -1;
  if (kept.size() == 1) return kept.front().second;

  const float max = kept.front().first;
  const auto temperature = static_cast<double>(options_.temperature);
  double total = 0;
  for (const Candidate& each : kept) total += weight(each.first, max, temperature);
  double rest = uniform(random_) * total;
  for (const Candidate& each : kept) {
    rest -= weight(each.first, max, temperature);
    if (rest < 0) return each.second;
  }
  return kept.front().second;  // rounding left a crumb
}

}  // namespace octalane
