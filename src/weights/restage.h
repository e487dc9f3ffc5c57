// The scales of re-encoded weights and what re-encoding costs. See core/restage.h for the arithmetic.
#pragma once

#include <string>

#include "core/aligned_buffer.h"
#include "core/packed_view.h"
#include "core/staged_type.h"

namespace octalane {

/// Scales of every unit (s8 or, for f8.row, the power of two): [tiles][units of a row][order.rows], 0 for rows past N.
/// A unit that holds a weight that is not finite has scale NaN, and spoils its outputs only.
struct Restaged {
  StagedType type = StagedType::s8_row;
  AlignedBuffer<float> scales;
  int64_t units = 0;  ///< of a row: 1, or ceil(K / 256) for s8.block
  /// Relative L2 distance of the re-encoded weights to the decoded ones, over the whole matrix.
  double relative_error = 0;
  /// int8: groups that lose more than 1 % of their own range because all their weights share a sign far from zero:
  /// max |w| > 2.54 (max w - min w). A scale of their own, max |w| / 127, would have steps of 2 % of that range
  /// already. Groups below a quarter of the largest weight of their unit do not count: what they lose, they lose to
  /// that weight, and weights of both signs would lose as much.
  int64_t same_sign_groups = 0;
  /// f8.row: weights that are not what they were, and the most that scales of one row are apart, as a power of two.
  int64_t inexact_weights = 0;
  int spread = 0;
};

/// Precondition: restaged(type), weights that a kernel of that type serves.
Restaged restage(const PackedView& weights, StagedType type, int threads);

/// Why these weights should not be multiplied re-encoded, for a person to read; empty = they may. int8: groups of one
/// sign. f8.row: a table code (E2M1) that did not move exactly; E4M3 codes that fall among the subnormals are at most
/// 2^-10 of the row's unit off, and that is what the lane is.
std::string why_unfit(const WeightSpec& spec, const Restaged& restaged);

/// One row as it is multiplied: out[K] = staged code * scale, in fp64.
void restaged_row(const PackedView& weights, const Restaged& restaged, int64_t row, double* out);

}  // namespace octalane
