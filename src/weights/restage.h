// The scales of re-encoded weights and what re-encoding costs. See core/restage.h for the arithmetic.
#pragma once

#include "core/aligned_buffer.h"
#include "core/packed_view.h"
#include "core/staged_type.h"

namespace octalane {

/// int8 scales of every unit: [tiles][units of a row][order.rows], 0 for rows past N. A unit that holds a weight that
/// is not finite has scale NaN, and spoils its outputs only.
struct Restaged {
  AlignedBuffer<float> scales;
  int64_t units = 0;  ///< of a row: 1, or ceil(K / 256) for s8.block
  /// Relative L2 distance of the re-encoded weights to the decoded ones, over the whole matrix.
  double relative_error = 0;
};

/// Precondition: restaged(type), codes that are no floats.
Restaged restage(const PackedView& weights, StagedType type, int threads);

/// One row as it is multiplied: out[K] = staged code * s8, in fp64.
void restaged_row(const PackedView& weights, const Restaged& restaged, int64_t row, double* out);

}  // namespace octalane
