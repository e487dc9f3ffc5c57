// Few tokens: weights are decoded in registers, straight from the packed stream, and never stored.
#include "kernels/tiles/prefetch.h"
#include "kernels/vnni/decode.h"

namespace octalane::vnni {
namespace {

/// Tiles [tile, tile + Tiles) times T tokens: Tiles * T sums, each a chain of multiply-adds. Tokens and tiles past the
/// last repeat it and are not written.
template <int Tiles, int T, class Decoder>
OCTALANE_INLINE void multiply_tiles(const MatmulArgs& args, const Decoder& decoder, const float* const (&tokens)[T],
                                    int64_t tile) {
  const PackedView& w = args.w;
  const int block_lines = tiles::lines_per_block(w.record);
  const int64_t last = args.tile_end - 1;
  __m512 y[Tiles][T] = {};
  int64_t begin = 0;
  for (int64_t r = 0; r < w.records; ++r, begin += w.record.cols) {
    const std::byte* records[Tiles];
    for (int i = 0; i < Tiles; ++i) records[i] = w.at(tile + i < last ? tile + i : last, r);
    const auto fetch = [&](int block) OCTALANE_INLINE_LAMBDA {
      for (int i = 0; i < Tiles; ++i) tiles::prefetch_ahead(records[i] + block * block_lines * 64, block_lines, Tiles);
    };
    const auto multiply = [&](auto i, int column, __m512 weights) OCTALANE_INLINE_LAMBDA {
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
        const __m512 token = broadcast_token(tokens[m.value] + begin + column);
        y[i.value][m.value] = _mm512_fmadd_ps(weights, token, y[i.value][m.value]);
      });
    };
    decode_in_registers(decoder, w, records, fetch, multiply);
  }
  for (int i = 0; i < Tiles && tile + i <= last; ++i) {
    const TileRows rows(w.rows, tile + i);
    for (int m = 0; m < T; ++m) {
      if (m < args.x.rows) rows.store(args.y.row(m) + (tile + i) * kRows, y[i][m]);
    }
  }
}

template <int Tiles, int T, class Decoder>
[[gnu::noinline]] void bf16_tiles(const MatmulArgs& args, const Decoder& decoder) {
  const float* tokens[T];
  for (int m = 0; m < T; ++m) tokens[m] = args.x.f32 + (m < args.x.rows ? m : args.x.rows - 1) * args.x.stride;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; tile += Tiles) {
    multiply_tiles<Tiles, T>(args, decoder, tokens, tile);
  }
}

}  // namespace

void bf16_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_decoder(args.w, [&](const auto& decoder) {
    switch (args.x.rows) {
      case 1: return bf16_tiles<4, 1>(args, decoder);
      case 2: return bf16_tiles<2, 2>(args, decoder);
      case 3:
      case 4: return bf16_tiles<2, 4>(args, decoder);
      default: return bf16_tiles<1, 8>(args, decoder);
    }
  });
}

}  // namespace octalane::vnni
