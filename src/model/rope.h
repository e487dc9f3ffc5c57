// Rotary position embedding: angles from the configuration once, cosines and sines per position, then rotations.
// RoPE: Su et al. 2021, https://arxiv.org/abs/2104.09864; YaRN: Peng et al. 2023, https://arxiv.org/abs/2309.00071.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace octalane {

class Rope {
 public:
  Rope() = default;
  /// `divisors` (a model's rope_freqs.weight, one per pair, or none) divide the frequencies before scaling.
  Rope(const RopeConfig& config, std::span<const float> divisors);

  int64_t pairs() const { return static_cast<int64_t>(radians_.size()); }

  /// cosines[pairs()], sines[pairs()] of one position: angles in fp64, results rounded once to fp32.
  void turns(int64_t position, float* cosines, float* sines) const;

  /// Turns one head in place; elements past 2 * pairs() stay.
  void rotate(const float* cosines, const float* sines, float* head) const;

 private:
  RopePairs style_ = RopePairs::adjacent;
  double magnitude_ = 1;
  std::vector<double> radians_;  // per position
};

}  // namespace octalane
