// The encoder of additive codebooks (formats/additive.h): fp32 weights to codes, codebooks and scales.
//
// Without second moments it minimises |W - W'|^2: residual k-means, then rounds of three steps, each of which lowers
// the error or leaves it: codes by a search over pairs of codewords, both codebooks together by least squares, scales
// by least squares. With the second moments H of the layer's inputs it goes on from there and minimises tr(E H E^T),
// the squared error of the layer's outputs, E = W - W': one pass that lets later columns make up for the errors of
// earlier ones (https://arxiv.org/abs/2210.17323, here for vectors), then rounds of the same three steps under H.
#pragma once

#include <cstdint>
#include <functional>

#include "core/status.h"
#include "formats/additive.h"

namespace octalane {

struct EncodeOptions {
  uint64_t seed = 0;
  int threads = 1;
  /// Rounds of codes, codebooks and scales at most. 0: residual k-means, and with moments one pass that feeds errors
  /// forward.
  int rounds = 10;
  /// Codewords of the first codebook that are tried for a vector with all of the second: 8, 16 ... 256, which is all.
  int beam = 32;
  /// H = sum over tokens of x x^T, K x K row-major, any scale; null: every column counts the same.
  const float* second_moments = nullptr;
  /// Added to the diagonal of H, in units of its mean. Less hardly fits the given inputs better, and others far worse:
  /// what those inputs leave free drifts off.
  double damping = 0.3;
  std::function<void(double share)> progress{};  ///< called on the calling thread, share of the work in [0, 1]
  std::function<bool()> cancelled{};             ///< asked between steps
};

/// w[rows][cols] row-major -> its nearest additive matrix, as far as the search goes. NaN counts as 0, what is beyond
/// +-65504 saturates there; a group of zeros gets scale 0. The same bits for the same values, shape and options,
/// whatever `threads` and the instruction set.
/// Errors: a shape that is none, cols that are no multiple of the vector, moments that are not finite, cancelled.
Expected<AdditiveMatrix> encode_additive(const float* w, int64_t rows, int64_t cols, const AdditiveShape& shape,
                                         const EncodeOptions& options = {});

/// Row n of the matrix: the fp32 sum of the codewords in order of their codebooks, times the fp32 scale.
void decode_additive_row(const AdditiveMatrix& matrix, int64_t n, float* out);

/// How far `after` is from `before`, both rows x cols.
struct MatrixError {
  double relative = 0;  ///< |E| / |W|
  double weighted = 0;  ///< sqrt(tr(E H E^T) / tr(W H W^T)); the same as relative when moments are null
};

/// Products with H in fp32, sums in fp64; H as it is given, without damping.
MatrixError matrix_error(const float* before, const float* after, int64_t rows, int64_t cols,
                         const float* second_moments, int threads);

}  // namespace octalane
