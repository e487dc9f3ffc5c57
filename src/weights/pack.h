// Planes + tile order -> packed weights: stored width kept, one stream per tile. See core/packed_view.h for the layout.
#pragma once

#include <functional>
#include <span>

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
  /// `codebooks`: of a spec that has them, [books][kCodewords][vector] finite values; copied.
  /// Precondition: cols is a multiple of the spec's group and super sizes (codebooks: of 32).
  static PackedWeights pack(const WeightSpec& spec, TileOrder order, int64_t rows, int64_t cols, int threads,
                            const std::function<void(int64_t row, const PlaneRow& out)>& fill,
                            std::span<const float> codebooks = {});

 private:
  void take_codebooks(std::span<const float> codebooks);

  AlignedBuffer<std::byte> data_;
  AlignedBuffer<float> codebooks_;
  AlignedBuffer<int16_t> fixed_codebooks_;
  PackedView view_;
};

/// The planes of one packed row, exactly as they were before packing. `out` is sized for view.cols; its codebooks are
/// left alone.
void unpack_row(const PackedView& view, int64_t row, const PlaneRow& out);

}  // namespace octalane
