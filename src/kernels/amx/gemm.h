// Products whose accumulators stay in tile registers over all of K: bf16 and s8.row.
//
// A panel of weights is decoded once, in the order in which it is read: [slab of 16 steps][pair of tiles][step][2
// tiles]. Then every strip of 32 tokens meets it: a slab of the strip stays in L1 while the panel streams by (few
// tokens: the slab of weights stays and the tokens stream). A block, 32 tokens x 32 rows x 16 steps, is 64 products;
// its accumulators are swapped with the next block's, one by one, in its first step.
#pragma once

#include "kernels/amx/output.h"
#include "kernels/amx/panels.h"
#include "kernels/amx/tiles.h"

namespace octalane::amx {
namespace {

/// What happens to the accumulators before a block's first products.
struct Swap {
  std::byte* save = nullptr;        ///< where the old ones go; null: nowhere
  const std::byte* load = nullptr;  ///< where the new ones come from
  bool clear = false;               ///< the new ones are zeros
};

template <int Tile>
OCTALANE_INLINE void swap_tile(const Swap& swap) {
  if (swap.save != nullptr) store<Tile>(swap.save + Tile * kStepTile);
  if (swap.load != nullptr) load<Tile>(swap.load + Tile * kStepTile);
  if (swap.clear) zero<Tile>();
}

/// Lines to bring closer while products run, `per_step` a step.
struct Prefetch {
  const std::byte* at = nullptr;
  int per_step = 0;
  OCTALANE_INLINE void step() {
    for (int i = 0; i < per_step; ++i, at += 64) _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
  }
};

/// One step: tokens in tiles 4 and 5, weights in 6 and 7. Halves: how many tiles of tokens there are.
template <class Lane, bool Slab, int Halves>
struct Step {
  OCTALANE_INLINE static void tokens(const std::byte* x) {
    if (leaves_out(Ablation::no_activation_load)) return;
    Slab ? load_stream<4>(x) : load<4>(x);
    if constexpr (Halves == 2) Slab ? load_stream<5>(x + kStepTile) : load<5>(x + kStepTile);
  }
  template <int Half>
  OCTALANE_INLINE static void weights(const std::byte* w) {
    Slab ? load<6 + Half>(w + Half * kStepTile) : load_stream<6 + Half>(w + Half * kStepTile);
  }
  OCTALANE_INLINE static void run(const std::byte* w, const std::byte* x) {
    tokens(x);
    weights<0>(w);
    Lane::template product<0, 4, 6>();
    if constexpr (Halves == 2) Lane::template product<2, 5, 6>();
    weights<1>(w);
    Lane::template product<1, 4, 7>();
    if constexpr (Halves == 2) Lane::template product<3, 5, 7>();
  }
  OCTALANE_INLINE static void run_swapping(const std::byte* w, const std::byte* x, const Swap& swap) {
    tokens(x);
    weights<0>(w);
    swap_tile<0>(swap);
    Lane::template product<0, 4, 6>();
    if constexpr (Halves == 2) swap_tile<2>(swap), Lane::template product<2, 5, 6>();
    weights<1>(w);
    swap_tile<1>(swap);
    Lane::template product<1, 4, 7>();
    if constexpr (Halves == 2) swap_tile<3>(swap), Lane::template product<3, 5, 7>();
  }
};

/// The steps of one block. In between, the block before it is converted, lines drip and lines are fetched.
template <class Lane, bool Slab, int Halves, class Finish>
OCTALANE_INLINE void run_block(const std::byte* w, const std::byte* x, int64_t steps, const Swap& swap,
                               const Finish& before, Drip& drip, Prefetch& prefetch) {
  using Step = Step<Lane, Slab, Halves>;
  constexpr int tiles = 2 * Halves;
  int done = before.block != nullptr ? 0 : tiles;
  Step::run_swapping(w, x, swap);
  drip.step();
  for (int64_t k = 1; k < steps; ++k) {
    w += kStepPair;
    x += kStepPair;
    Step::run(w, x);
    prefetch.step();
    if (done < tiles && (k & 1) == 0) before.tile(done++);
    drip.step();
  }
  while (done < tiles) before.tile(done++);
}

/// The scratch of one product.
struct Scratch {
  std::byte* panel;
  std::byte* accumulators;
  float* staging;

  OCTALANE_INLINE Scratch(std::byte* scratch, const Panels& panels)
      : panel(scratch),
        accumulators(panel + panels.panel_bytes()),
        staging(reinterpret_cast<float*>(accumulators + panels.accumulator_bytes())) {}
};

/// A decoder whose type is forgotten, so that what runs around it is compiled once and not for every kind of code. It
/// fills one tile's half of a slab: `steps` steps from `step` on, kStepPair apart.
struct Decode {
  const void* decoder;
  void (*fill)(const void* decoder, int64_t tile, int64_t step, int64_t steps, std::byte* out);
};

OCTALANE_INLINE void decode_panel(std::byte* panel, const Panels& cut, int64_t tile, int64_t tile_end, int64_t step0,
                                  int64_t depth, const Decode& decode) {
  for (int64_t t = tile; t < tile_end; ++t) {
    std::byte* out = panel + (t - tile) / 2 * kSlab + ((t - tile) & 1) * kStepTile;
    for (int64_t step = 0; step < depth; step += kSlabSteps, out += cut.pairs * kSlab) {
      decode.fill(decode.decoder, t, step0 + step, depth - step < kSlabSteps ? depth - step : kSlabSteps, out);
    }
  }
}

/// Meets panels with strips, one after another; what one leaves open (accumulators in registers, a block to convert,
/// lines to write) is finished during the next.
template <class Lane, bool Slab, int Halves, class ConvertFor>
class Runner {
 public:
  OCTALANE_INLINE Runner(const MatmulArgs& args, const Panels& cut, const Scratch& scratch,
                         const ConvertFor& convert_for)
      : args_(args), cut_(cut), scratch_(scratch), convert_for_(convert_for) {}

  /// Tiles [tile, tile_end), at most 2 * cut.pairs, steps [step0, step0 + depth) of K.
  OCTALANE_INLINE void panel(int64_t tile, int64_t tile_end, int64_t step0, int64_t depth) {
    const bool last = step0 + depth == cut_.steps;
    for (int64_t strip = 0; strip < cut_.strips; ++strip) {
      float* staged = scratch_.staging + parity_ * (cut_.pairs * kBlock / 4);
      strip_of_panel(tile, tile_end, step0, depth, strip, staged);
      if (!last) continue;
      drip_.flush();
      drip_.start(staged, cut_.pairs, args_.y, strip * kStripTokens, tile * kRows,
                  output_columns(args_, tile, tile_end));
      parity_ ^= 1;
    }
  }

  OCTALANE_INLINE void finish() {
    if (held_ == nullptr) return;
    save_accumulators<Halves>(held_);
    for (int q = 0; q < 2 * Halves; ++q) before_.tile(q);
    drip_.flush();
  }

 private:
  using Convert = decltype(static_cast<ConvertFor*>(nullptr)->operator()(int64_t{}, int64_t{}));

  OCTALANE_INLINE void strip_of_panel(int64_t tile, int64_t tile_end, int64_t step0, int64_t depth, int64_t strip,
                                      float* staged) {
    const int64_t pairs = (tile_end - tile + 1) / 2, slabs = (depth + kSlabSteps - 1) / kSlabSteps;
    const int64_t strip_bytes = args_.x.stride / Lane::kStepCols * kStepPair;
    const std::byte* x = Lane::tokens(args_.x) + strip * strip_bytes + step0 * kStepPair;
    for (int64_t slab = 0; slab < slabs; ++slab, x += kSlab) {
      const int64_t left = depth - slab * kSlabSteps, steps = left < kSlabSteps ? left : kSlabSteps;
      Prefetch prefetch{slab + 1 < slabs ? x + kSlab : x - slab * kSlab + strip_bytes, 0};
      if (!Slab) prefetch.per_step = static_cast<int>((kStepPair / 64 + pairs - 1) / pairs);
      for (int64_t pair = 0; pair < pairs; ++pair) {
        std::byte* own = scratch_.accumulators + ((cut_.whole() ? 0 : strip) * cut_.pairs + pair) * kBlock;
        const bool fresh = step0 == 0 && slab == 0;
        Swap swap;
        if (held_ != own || fresh) swap = {held_, fresh ? nullptr : own, fresh};
        run_block<Lane, Slab, Halves>(scratch_.panel + (slab * cut_.pairs + pair) * kSlab, x, steps, swap, before_,
                                      drip_, prefetch);
        held_ = own;
        before_.block = nullptr;
        if (slab + 1 == slabs && step0 + depth == cut_.steps) {
          before_ = {own, staged + pair * kPairRows, cut_.pairs * kPairRows, convert_for_(tile + 2 * pair, strip)};
        }
      }
    }
  }

  const MatmulArgs& args_;
  const Panels& cut_;
  const Scratch& scratch_;
  const ConvertFor& convert_for_;
  std::byte* held_ = nullptr;  ///< where the accumulators in the registers belong
  Finish<Convert> before_;     ///< the block before, when it was its last
  Drip drip_;
  int parity_ = 0;  ///< which half of staging the strip at work converts into
};

/// Decodes panel after panel and hands each to the runner.
template <class Runner>
OCTALANE_INLINE void for_each_panel(const MatmulArgs& args, const Panels& cut, std::byte* panel, const Decode& decode,
                                    Runner& runner) {
  for (int64_t tile = args.tile_begin; tile < args.tile_end; tile += 2 * cut.pairs) {
    const int64_t end = tile + 2 * cut.pairs < args.tile_end ? tile + 2 * cut.pairs : args.tile_end;
    for (int64_t step0 = 0; step0 < cut.steps; step0 += cut.depth) {
      const int64_t depth = cut.steps - step0 < cut.depth ? cut.steps - step0 : cut.depth;
      const bool first = tile == args.tile_begin && step0 == 0;
      if (decodes_panel(first)) decode_panel(panel, cut, tile, end, step0, depth, decode);
      if (first && leaves_out(Ablation::no_activation_load)) load<4>(panel), load<5>(panel);
      runner.panel(tile, end, step0, depth);
    }
  }
  runner.finish();
}

template <class Lane, bool Slab, int Halves, class ConvertFor>
OCTALANE_INLINE void run(const MatmulArgs& args, const Panels& cut, const Decode& decode,
                         const ConvertFor& convert_for) {
  const Tiles tiles;
  const Scratch scratch(args.scratch, cut);
  Runner<Lane, Slab, Halves, ConvertFor> runner(args, cut, scratch, convert_for);
  for_each_panel(args, cut, scratch.panel, decode, runner);
}

template <class Lane, class ConvertFor>
OCTALANE_INLINE void gemm(const MatmulArgs& args, const Panels& cut, const Decode& decode,
                          const ConvertFor& convert_for) {
  if (args.x.rows == 0 || args.tile_begin == args.tile_end) return;
  if (cut.steps == 0) return clear_outputs(args);
  if (args.x.rows <= 16) return run<Lane, true, 1>(args, cut, decode, convert_for);
  if (args.x.rows <= kSlabTokens) return run<Lane, true, 2>(args, cut, decode, convert_for);
  return run<Lane, false, 2>(args, cut, decode, convert_for);
}

}  // namespace
}  // namespace octalane::amx
