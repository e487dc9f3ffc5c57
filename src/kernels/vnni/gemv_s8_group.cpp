// Few tokens: weights are decoded in registers, straight from the packed stream, and never stored.
#include "kernels/vnni/prefetch.h"
#include "kernels/vnni/s8_group.h"

namespace octalane::vnni {
namespace {

/// Serves add_product from a packed record.
template <class Stager>
struct RecordSource {
  const Stager& stager;
  const PackedView& w;
  const std::byte* record;
  int block_lines;  ///< to fetch

  template <int Quad>
  OCTALANE_INLINE __m512i quad(int block) const {
    return stager.template quad<Quad>(record + block * w.record.block_bytes);
  }
  OCTALANE_INLINE GroupScales scales(int g) const { return group_scales(w, record, g); }
  OCTALANE_INLINE void prefetch(int block, int blocks) const {
    prefetch_ahead(record + block * block_lines * 64, blocks * block_lines);
  }
};

template <int T, bool Split, class Stager>
[[gnu::noinline]] void gemv_tiles(const MatmulArgs& args, const Stager& stager) {
  write_tokens<T, Sums::f32>(args.x, 0, 0, args.w.padded_cols(), stager.fold(), args.scratch);
  const int block_lines = lines_per_block(args.w.record);
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    __m512 y[1][T] = {};
    const std::byte* x = args.scratch;
    for (int64_t r = 0; r < args.w.records; ++r) {
      const RecordSource<Stager> source[1] = {{stager, args.w, args.w.at(tile, r), block_lines}};
      x = add_product<Split, 1, T>(source, args.w.record.cols, args.w.spec.scale, x, y);
    }
    const TileRows rows(args.w.rows, tile);
    for (int m = 0; m < T; ++m) {
      if (m < args.x.rows) rows.store(args.y.row(m) + tile * kRows, y[0][m]);
    }
  }
}

template <bool Split, class Stager>
OCTALANE_INLINE void gemv(const MatmulArgs& args, const Stager& stager) {
  switch (args.x.rows) {
    case 1: return gemv_tiles<1, Split>(args, stager);
    case 2: return gemv_tiles<2, Split>(args, stager);
    case 3:
    case 4: return gemv_tiles<4, Split>(args, stager);
    case 5:
    case 6: return gemv_tiles<6, Split>(args, stager);
    default: return gemv_tiles<8, Split>(args, stager);
  }
}

}  // namespace

void s8_group_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_stager(args.w, [&](const auto& stager) {
    if (args.w.spec.scale.group < kBlockCols) {
      gemv<true>(args, stager);
    } else {
      gemv<false>(args, stager);
    }
  });
}

int64_t s8_group_gemv_scratch(const Problem& problem) {
  const WeightSpec& w = problem.weights;
  return TokenStream{token_groups(w.scale)}.bytes(kGemvTokens, padded_cols(w, problem.cols));
}

}  // namespace octalane::vnni
