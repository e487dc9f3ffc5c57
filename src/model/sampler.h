#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace octalane {

/// temperature 0 is greedy. Filters apply in this order: top-k, top-p, min-p; then the temperature, then one draw.
/// 0 (top_k, min_p) or 1 (top_p) turns a filter off. The lowest token wins a tie; NaN counts as minus infinity.
struct SamplerOptions {
  float temperature = 0.0f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  uint64_t seed = 0;
};

/// The same seed and logits give the same tokens on every machine: draws are the generator's own bits, sums are doubles
/// in a fixed order. (The exp of two maths libraries may differ in the last bit; a draw would have to fall into it.)
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}

  /// A token, -1 for no logits. Takes one number from the generator when there is a choice, else none.
  int32_t sample(std::span<const float> logits);

  /// What the filters leave, as (logit, token), the best first; greedy leaves one. Valid until the next call.
  std::span<const std::pair<float, int32_t>> filter(std::span<const float> logits);

 private:
  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, int32_t>> candidates_;
};

}  // namespace octalane
