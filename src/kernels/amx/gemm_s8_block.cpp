// s8.block and s8.xblock: integer sums over 256 columns, four steps, leave the tile registers for fp32 accumulators in
// memory. The sums of one block of columns are scaled during the products of the next.
#include "kernels/amx/with_decoder_s8.h"

namespace octalane::amx {
namespace {

inline constexpr int kDrainSteps = kRestageBlock / S8::kStepCols;

/// y = fma(D * weight scale, token scale, y) for one block of columns: [4 tiles][16 tokens][16 rows].
struct Drain {
  const std::byte* sums = nullptr;     ///< null: nothing to do
  float* y = nullptr;                  ///< fp32 accumulators, laid out as the sums
  const float* token_scale = nullptr;  ///< [32]
  __m512 weight_scale[2];
  bool first = false;  ///< y starts at 0

  OCTALANE_INLINE void tile(int q) const {
    if (leaves_out(Ablation::no_drain)) return;
    const std::byte* from = sums + q * kStepTile;
    float* to = y + q * kStepTile / 4;
    const float* scale = token_scale + (q >> 1) * 16;
    for (int r = 0; r < 16; ++r) {
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(from + r * 64)), weight_scale[q & 1]);
      const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(to + r * 16);
      _mm512_store_ps(to + r * 16, _mm512_fmadd_ps(product, _mm512_set1_ps(scale[r]), before));
    }
  }
};

/// What is done once with an output: nothing, or the weight scale of its row.
struct Scaled {
  __m512 s8[2];
  bool by_row;
  OCTALANE_INLINE __m512 operator()(__m512i sums, int, int half) const {
    const __m512 y = _mm512_castsi512_ps(sums);
    return by_row ? _mm512_mul_ps(y, s8[half]) : y;
  }
};

/// Scratch beside that of gemm.h: two blocks of integer sums, and the scales of a strip's tokens by block of columns.
struct BlockScratch : Scratch {
  std::byte* sums;
  float* token_scales;  ///< [blocks of columns][32]
  OCTALANE_INLINE BlockScratch(std::byte* scratch, const Panels& cut)
      : Scratch(scratch, cut),
        sums(reinterpret_cast<std::byte*>(staging) + cut.staging_bytes()),
        token_scales(reinterpret_cast<float*>(sums + 2 * kBlock)) {}
};

template <bool Slab, int Halves>
class BlockRunner {
 public:
  OCTALANE_INLINE BlockRunner(const MatmulArgs& args, const Panels& cut, const BlockScratch& scratch, bool by_row)
      : args_(args),
        cut_(cut),
        scratch_(scratch),
        by_row_(by_row),
        blocks_((args.w.cols + kRestageBlock - 1) / kRestageBlock) {}

  OCTALANE_INLINE void panel(int64_t tile, int64_t tile_end, int64_t step0, int64_t depth) {
    const int64_t pairs = (tile_end - tile + 1) / 2;
    for (int64_t strip = 0; strip < cut_.strips; ++strip) {
      gather_token_scales(strip);
      products(tile, pairs, step0, depth, strip);
      for (int q = 0; q < 2 * Halves; ++q) drain_.tile(q);
      drain_.sums = nullptr;
      if (step0 + depth != cut_.steps) continue;
      float* staged = scratch_.staging + parity_ * (cut_.pairs * kBlock / 4);
      parity_ ^= 1;
      drip_.flush();
      for (int64_t pair = 0; pair < pairs; ++pair) convert(tile + 2 * pair, accumulators(strip, pair), staged, pair);
      drip_.start(staged, cut_.pairs, args_.y, strip * kStripTokens, tile * kRows,
                  output_columns(args_, tile, tile_end));
    }
  }

  OCTALANE_INLINE void finish() { drip_.flush(); }

 private:
  OCTALANE_INLINE std::byte* accumulators(int64_t strip, int64_t pair) const {
    return scratch_.accumulators + ((cut_.whole() ? 0 : strip) * cut_.pairs + pair) * kBlock;
  }

  OCTALANE_INLINE void gather_token_scales(int64_t strip) const {
    const int64_t stride = args_.x.groups.scales(args_.x.stride);
    for (int64_t b = 0; b < blocks_; ++b) {
      for (int64_t t = 0; t < kStripTokens; ++t) {
        const int64_t m = strip * kStripTokens + t;
        scratch_.token_scales[b * kStripTokens + t] = m < args_.x.rows ? args_.x.scales[m * stride + b] : 0.0f;
      }
    }
  }

  OCTALANE_INLINE const float* weight_scales(int64_t tile, int64_t block) const {
    const int64_t at = tile < args_.w.tiles ? tile : tile - 1;  // the missing half of the last pair
    return args_.restage + (by_row_ ? at : at * blocks_ + block) * kRows;
  }

  OCTALANE_INLINE void convert(int64_t tile, const std::byte* block, float* staged, int64_t pair) const {
    const Scaled scaled{{_mm512_loadu_ps(weight_scales(tile, 0)), _mm512_loadu_ps(weight_scales(tile + 1, 0))},
                        by_row_};
    const Finish<Scaled> finish{block, staged + pair * kPairRows, cut_.pairs * kPairRows, scaled};
    for (int q = 0; q < 2 * Halves; ++q) finish.tile(q);
  }

  OCTALANE_INLINE void products(int64_t tile, int64_t pairs, int64_t step0, int64_t depth, int64_t strip) {
    const int64_t slabs = (depth + kSlabSteps - 1) / kSlabSteps;
    const int64_t strip_bytes = args_.x.stride / S8::kStepCols * kStepPair;
    const std::byte* x = S8::tokens(args_.x) + strip * strip_bytes + step0 * kStepPair;
    for (int64_t slab = 0; slab < slabs; ++slab, x += kSlab) {
      const int64_t left = depth - slab * kSlabSteps, steps = left < kSlabSteps ? left : kSlabSteps;
      Prefetch prefetch{slab + 1 < slabs ? x + kSlab : x - slab * kSlab + strip_bytes, 0};
      if (!Slab) prefetch.per_step = static_cast<int>((kStepPair / 64 + pairs - 1) / pairs);
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const std::byte* w = scratch_.panel + (slab * cut_.pairs + pair) * kSlab;
        for (int64_t k = 0; k < steps; k += kDrainSteps) {
          const int64_t count = steps - k < kDrainSteps ? steps - k : kDrainSteps;
          block(w + k * kStepPair, x + k * kStepPair, count, prefetch);
          const int64_t b = (step0 + slab * kSlabSteps + k) / kDrainSteps;
          hand_over(tile + 2 * pair, b, reinterpret_cast<float*>(accumulators(strip, pair)));
        }
      }
    }
  }

  /// One block of columns, `steps` <= 4; the one before is drained, one tile a step.
  OCTALANE_INLINE void block(const std::byte* w, const std::byte* x, int64_t steps, Prefetch& prefetch) {
    zero<0>();
    zero<1>();
    if constexpr (Halves == 2) zero<2>(), zero<3>();
    int drained = drain_.sums != nullptr ? 0 : 2 * Halves;
    for (int64_t k = 0; k < steps; ++k, w += kStepPair, x += kStepPair) {
      Step<S8, Slab, Halves>::run(w, x);
      prefetch.step();
      drip_.step();
      if (drained < 2 * Halves) drain_.tile(drained++);
    }
    while (drained < 2 * Halves) drain_.tile(drained++);
  }

  /// The sums just made are the next to be drained.
  OCTALANE_INLINE void hand_over(int64_t tile, int64_t b, float* y) {
    std::byte* sums = scratch_.sums + half_ * kBlock;
    half_ ^= 1;
    save_accumulators<Halves>(sums);
    const __m512 one = _mm512_set1_ps(1.0f);
    drain_ = {sums,
              y,
              scratch_.token_scales + b * kStripTokens,
              {by_row_ ? one : _mm512_loadu_ps(weight_scales(tile, b)),
               by_row_ ? one : _mm512_loadu_ps(weight_scales(tile + 1, b))},
              b == 0};
  }

  const MatmulArgs& args_;
  const Panels& cut_;
  const BlockScratch& scratch_;
  const bool by_row_;  ///< s8.xblock: weights have one scale a row
  const int64_t blocks_;
  Drain drain_;
  Drip drip_;
  int half_ = 0, parity_ = 0;
};

template <bool Slab, int Halves>
OCTALANE_INLINE void run(const MatmulArgs& args, const Decode& decode, const Panels& cut, bool by_row) {
  const Tiles tiles;
  const BlockScratch scratch(args.scratch, cut);
  BlockRunner<Slab, Halves> runner(args, cut, scratch, by_row);
  for_each_panel(args, cut, scratch.panel, decode, runner);
}

template <bool ByRow>
[[gnu::noinline]] void multiply(const MatmulArgs& args, const Decode& decode) {
  const Panels cut = s8_block_panels(args.x.rows, args.w.padded_cols());
  if (args.x.rows == 0 || args.tile_begin == args.tile_end) return;
  if (cut.steps == 0) return clear_outputs(args);
  if (args.x.rows <= 16) return run<true, 1>(args, decode, cut, ByRow);
  if (args.x.rows <= kSlabTokens) return run<true, 2>(args, decode, cut, ByRow);
  run<false, 2>(args, decode, cut, ByRow);
}

}  // namespace

void s8_xblock_gemm(const MatmulArgs& args) { with_decoder(args, 1, multiply<true>); }
void s8_block_gemm(const MatmulArgs& args) {
  with_decoder(args, (args.w.cols + kRestageBlock - 1) / kRestageBlock, multiply<false>);
}

}  // namespace octalane::amx
