// A slab of 48 rows x 256 columns is decoded into L1, meets all tokens, eight at a time, and makes room for the next.
// Sums wait in between in L2.
#include "kernels/avx512bf16/decode.h"
#include "kernels/avx512bf16/kernels.h"

namespace octalane::avx512bf16 {
namespace {

inline constexpr int kPairRow = 64;                           ///< bytes of one column pair of a tile
inline constexpr int64_t kStepTile = 16 * kPairRow;           ///< of 32 columns of a tile
inline constexpr int64_t kSlabTile = kSlabSteps * kStepTile;  ///< of a tile in a slab
inline constexpr int64_t kSlabBytes = kTiles * kSlabTile;

/// One slab on its way past all tokens.
struct Slab {
  const std::byte* weights;
  int64_t tile;
  int64_t step0, steps;
  bool first, last;  ///< of its tiles: starts from zero, writes y
};

/// Two bfloat16 of a token, in every lane.
OCTALANE_INLINE __m512i broadcast_pair(const std::byte* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return _mm512_set1_epi32(pair);
}

OCTALANE_INLINE void add_products(__m512& sum, __m512i weights, __m512i token) {
  sum = _mm512_dpbf16_ps(sum, reinterpret_cast<const __m512bh&>(weights), reinterpret_cast<const __m512bh&>(token));
}

/// Eight tokens, or one, times the Tiles tiles of a slab.
template <int Tiles, int Tokens>
OCTALANE_INLINE void multiply_block(const Slab& slab, const std::byte* x, __m512 (&y)[Tiles][Tokens]) {
  const std::byte* w = slab.weights;
  for (int64_t step = 0; step < slab.steps; ++step, x += kStripTokens * kStepBytes, w += kStepTile) {
    for (int p = 0; p < 16; ++p) {
      __m512i weights[Tiles];
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        weights[i.value] = _mm512_load_si512(w + i.value * kSlabTile + p * kPairRow);
      });
      unroll<Tokens>([&](auto m) OCTALANE_INLINE_LAMBDA {
        const __m512i token =
            leaves_out(Ablation::no_activation_load) ? any_bytes() : broadcast_pair(x + m.value * kStepBytes + p * 4);
        unroll<Tiles>([&](auto i)
                          OCTALANE_INLINE_LAMBDA { add_products(y[i.value][m.value], weights[i.value], token); });
      });
    }
  }
}

template <int Tiles>
[[gnu::noinline]] void multiply_slab(const MatmulArgs& args, const Slab& slab, __m512* sums) {
  const int64_t strip_bytes = args.x.stride / 32 * kStripTokens * kStepBytes;
  const auto* x = reinterpret_cast<const std::byte*>(args.x.bf16) + slab.step0 * kStripTokens * kStepBytes;
  for (int64_t m = 0; m < args.x.rows; m += kTokens, sums += Tiles * kTokens) {
    const std::byte* block = x + m / kStripTokens * strip_bytes + m % kStripTokens * kStepBytes;
    __m512 y[Tiles][kTokens];
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      unroll<kTokens>([&](auto t) OCTALANE_INLINE_LAMBDA {
        y[i.value][t.value] = slab.first ? _mm512_setzero_ps() : sums[i.value * kTokens + t.value];
      });
    });
    multiply_block<Tiles, kTokens>(slab, block, y);
    if (!slab.last) {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        unroll<kTokens>([&](auto t)
                            OCTALANE_INLINE_LAMBDA { sums[i.value * kTokens + t.value] = y[i.value][t.value]; });
      });
      continue;
    }
    unroll<kTokens>([&](auto t) OCTALANE_INLINE_LAMBDA {
      if (m + t.value >= args.x.rows) return;
      for (int i = 0; i < Tiles; ++i) {
        float* to = args.y.row(m + t.value) + (slab.tile + i) * kRows;
        TileRows(args.w.rows, slab.tile + i).store(to, y[i][t.value]);
      }
    });
  }
}

void multiply(const MatmulArgs& args, const Decoder& decoder) {
  auto* weights = args.scratch;
  auto* sums = reinterpret_cast<__m512*>(weights + kSlabBytes);
  const int64_t steps = args.w.padded_cols() / kBlockCols;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; tile += kTiles) {
    const int64_t tiles = args.tile_end - tile < kTiles ? args.tile_end - tile : kTiles;
    int64_t step = 0;
    do {  // once without columns, for there are zeros to write
      const int64_t count = steps - step < kSlabSteps ? steps - step : kSlabSteps;
      const Slab slab{weights, tile, step, count, step == 0, step + count == steps};
      for (int64_t i = 0; i < tiles && decodes_panel(tile == args.tile_begin && step == 0); ++i) {
        decoder.fill(decoder.self, tile + i, step, step + count, weights + i * kSlabTile, kStepTile);
      }
      if (tiles == 3) {
        multiply_slab<3>(args, slab, sums);
      } else if (tiles == 2) {
        multiply_slab<2>(args, slab, sums);
      } else {
        multiply_slab<1>(args, slab, sums);
      }
      step += kSlabSteps;
    } while (step < steps);
  }
}

}  // namespace

void bf16_gemm(const MatmulArgs& args) {
  with_any_decoder(args.w, [&](const Decoder& decoder) { multiply(args, decoder); });
}

int64_t bf16_scratch(const Problem& problem) {
  const int64_t blocks = (problem.tokens + kTokens - 1) / kTokens;
  return kSlabBytes + blocks * kTiles * kTokens * static_cast<int64_t>(sizeof(__m512));
}

}  // namespace octalane::avx512bf16
