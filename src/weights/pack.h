// Planes + tile order -> packed weights: stored width kept, one stream per tile. See core/packed_view.h for the layout.
#pragma once

#include <functional>

#include "core/aligned_buffer.h"
#include "core/packed_view.h"
#include "core/planes.h"

namespace octalane {

/// Owns packed weights.
class PackedWeights {
 public:
  const PackedView& view() const { return view_; }
  int64_t bytes() const { return data_.size(); }

  /// Packs rows x cols weights; `fill(row, out)` writes the planes of one row, and is called from several threads at
  /// once for different rows. Needs one tile of planes per thread beside the result.
  /// Precondition: cols is a multiple of the spec's group and super sizes.
  static PackedWeights pack(const WeightSpec& spec, TileOrder order, int64_t rows, int64_t cols, int threads,
                            const std::function<void(int64_t row, const PlaneRow& out)>& fill);

 private:
  AlignedBuffer<std::byte> data_;
  PackedView view_;
};

/// The planes of one packed row, exactly as they were before packing. `out` is sized for view.cols.
void unpack_row(const PackedView& view, int64_t row, const PlaneRow& out);

}  // namespace octalane
