// One synthetic additive matrix and one input, ready for any kernel of a lane.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "kernels/kernel.h"
#include "linear/linear.h"

namespace octalane::bench {

inline constexpr std::string_view kFormat = "additive-m2v8-g128";

/// N x K weights of random codes, of a standard deviation of about 1/sqrt(K), and `tokens` Gaussian rows of
/// activations. All from the seed.
class Fixture {
 public:
  Fixture(int64_t rows, int64_t cols, int64_t tokens, uint64_t seed);

  const PackedView& weights() const { return packed_.view(); }
  MatrixView<const float> x() const { return dense_view<const float>(x_.data(), tokens_, packed_.view().cols); }
  /// The activations as a kernel wants them; made once for each kernel.
  const ActivationsView& formed(const Context& context, const Choice& choice);
  /// fp64 on the decoded weights, of output (m, n).
  double reference(int64_t m, int64_t n) const;

 private:
  int64_t tokens_;
  PackedWeights packed_;
  std::vector<float> x_;
  std::map<const Kernel*, std::unique_ptr<Activations>> formed_;
};

}  // namespace octalane::bench
