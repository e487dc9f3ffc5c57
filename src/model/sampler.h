#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace octalane {

/// temperature 0 is greedy (the lowest index wins a tie). Filters apply in this order: top-k, top-p, min-p; then the
/// temperature, then one draw. 0 (top_k, min_p) or 1 (top_p) turns a filter off.
struct SamplerOptions {
  float temperature = 0.0f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  uint64_t seed = 0;
};

/// The same seed and logits give the same tokens on every machine.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  int32_t sample(std::span<const float> logits);

 private:
  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, int32_t>> candidates_;
};

}  // namespace octalane
