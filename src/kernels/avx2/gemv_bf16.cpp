// Few tokens: weights are decoded in registers, straight from the packed stream, and never stored.
#include "kernels/avx2/decode.h"

namespace octalane::avx2 {
namespace {

template <int M, class Decoder>
void bf16_tiles(const MatmulArgs& args, const Decoder& decoder) {
  const int64_t stride = args.x.stride;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    Pair y[M] = {};
    const float* x = args.x.f32;
    for (int64_t r = 0; r < args.w.records; ++r, x += args.w.record.cols) {
      const auto multiply = [&](int column, const Pair& weights) OCTALANE_INLINE_LAMBDA {
        unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
          const __m256 token = broadcast_token(x + m.value * stride + column);
          y[m.value].v[0] = _mm256_fmadd_ps(weights.v[0], token, y[m.value].v[0]);
          y[m.value].v[1] = _mm256_fmadd_ps(weights.v[1], token, y[m.value].v[1]);
        });
      };
      decode_in_registers(decoder, args.w, args.w.at(tile, r), multiply);
    }
    const TileRows rows(args.w.rows, tile);
    for (int m = 0; m < M; ++m) rows.store(args.y.row(m) + tile * kRows, y[m]);
  }
}

}  // namespace

void bf16_gemv(const MatmulArgs& args) {
  with_decoder(args.w, [&](const auto& decoder) {
    switch (args.x.rows) {
      case 1: return bf16_tiles<1>(args, decoder);
      case 2: return bf16_tiles<2>(args, decoder);
      default: return;
    }
  });
}

}  // namespace octalane::avx2
