// A matrix while it is being encoded, and the three steps that lower its error. Private to the additive room.
#pragma once

#include <cstdint>
#include <vector>

#include "additive/moments.h"
#include "formats/additive.h"

namespace octalane::additive {

struct Fit {
  AdditiveShape shape;
  int64_t rows = 0, cols = 0, vectors = 0, groups = 0;  ///< vectors and groups of a row
  int threads = 1;
  std::vector<float> weights;                 ///< rows x cols, finite, scaled so that the largest scale is about 1
  std::vector<float> scales;                  ///< rows x groups
  std::vector<float> books;                   ///< [books][256][vector]
  std::vector<uint8_t> codes;                 ///< [rows][vectors][books]
  const Moments* moments = nullptr;           ///< null: the identity
  int scale_exponent = 0, book_exponent = 0;  ///< stored = kept here * 2^exponent

  int64_t group_columns() const { return shape.group == 0 ? cols : shape.group; }
  float scale(int64_t n, int64_t j) const {
    return scales[static_cast<size_t>(n * groups + j * shape.vector / group_columns())];
  }
  const uint8_t* code(int64_t n, int64_t j) const { return codes.data() + (n * vectors + j) * shape.books; }
  uint8_t* code(int64_t n, int64_t j) { return codes.data() + (n * vectors + j) * shape.books; }
};

/// The sum of the codewords of `codes`, of any [books][256][vector].
void add_codewords(const AdditiveShape& shape, const float* books, const uint8_t* codes, float* out);

/// Row n of what the fit stands for.
void decode_row(const Fit& fit, int64_t n, float* out);

/// tr(E H E^T).
double loss(const Fit& fit);

/// Both codebooks together by least squares, by `steps` steps of conjugate gradients from where they are.
void fit_codebooks(Fit& fit, int steps);

/// Every row's scales by least squares; those that would not be positive stay.
void fit_scales(Fit& fit);

/// Scales and codebooks become values that fp16 holds.
void round_to_stored(Fit& fit);
float round_scale(const Fit& fit, float scale);

/// Codewords that no vector uses become what the worst vectors lack.
void reseed_unused(Fit& fit);

/// New codes for all vectors, from left to right, each made to compensate for the errors of those before it. Without
/// moments: the nearest.
void feed_errors_forward(Fit& fit, int beam);

/// Better codes for each vector while all others stay.
void improve_codes(Fit& fit, int beam);

/// Codebooks by (residual) k-means on at most 65,536 vectors, codes and scales from the norms of groups.
void start_with_kmeans(Fit& fit, uint64_t seed);

}  // namespace octalane::additive
