// Few tokens: weights are decoded in registers, straight from the packed stream, and never stored.
#include "kernels/avx2/s8_group.h"

namespace octalane::avx2 {
namespace {

/// Serves add_product from a packed record.
template <class Stager>
struct RecordSource {
  using Dot = typename Stager::Dot;
  const Stager& stager;
  const PackedView& w;
  const std::byte* record;

  template <int Quad>
  OCTALANE_INLINE __m256i quad(int block, int half) const {
    return stager.template quad<Quad>(record + block * w.record.block_bytes, half);
  }
  OCTALANE_INLINE GroupScales scales(int g) const { return group_scales(w, record, g); }
  OCTALANE_INLINE int fold() const { return stager.fold(); }
};

template <int M, class Stager>
void s8_group_tiles(const MatmulArgs& args, const Stager& stager) {
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    Pair y[M] = {};
    Tokens x(args.x, 0);
    for (int64_t r = 0; r < args.w.records; ++r) {
      const RecordSource<Stager> source{stager, args.w, args.w.at(tile, r)};
      add_product<M>(source, args.w.record.cols, args.w.spec.scale, x, y);
      x.next_columns(args.w.record.cols);
    }
    const TileRows rows(args.w.rows, tile);
    for (int m = 0; m < M; ++m) rows.store(args.y.row(m) + tile * kRows, y[m]);
  }
}

}  // namespace

void s8_group_gemv(const MatmulArgs& args) {
  with_stager(args.w, [&](const auto& stager) {
    switch (args.x.rows) {
      case 1: return s8_group_tiles<1>(args, stager);
      case 2: return s8_group_tiles<2>(args, stager);
      default: return;
    }
  });
}

}  // namespace octalane::avx2
