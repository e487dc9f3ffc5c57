// Few tokens: weights are decoded in registers, straight from the packed stream, and never stored.
#include "kernels/vnni/decode.h"
#include "kernels/vnni/prefetch.h"

namespace octalane::vnni {
namespace {

/// Tokens past the last repeat it and are not written.
template <int T, class Decoder>
[[gnu::noinline]] void bf16_tiles(const MatmulArgs& args, const Decoder& decoder) {
  const float* tokens[T];
  for (int m = 0; m < T; ++m) tokens[m] = args.x.f32 + (m < args.x.rows ? m : args.x.rows - 1) * args.x.stride;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    __m512 y[T] = {};
    int64_t begin = 0;
    for (int64_t r = 0; r < args.w.records; ++r, begin += args.w.record.cols) {
      const std::byte* const record = args.w.at(tile, r);
      prefetch_ahead(record, args.w.record.bytes);
      decoder.record(record, [&](int column, __m512 weights) OCTALANE_INLINE_LAMBDA {
        unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
          y[m.value] = _mm512_fmadd_ps(weights, _mm512_set1_ps(tokens[m.value][begin + column]), y[m.value]);
        });
      });
    }
    const TileRows rows(args.w.rows, tile);
    for (int m = 0; m < T; ++m) {
      if (m < args.x.rows) rows.store(args.y.row(m) + tile * kRows, y[m]);
    }
  }
}

}  // namespace

void bf16_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_decoder(args.w, [&](const auto& decoder) {
    switch (args.x.rows) {
      case 1: return bf16_tiles<1>(args, decoder);
      case 2: return bf16_tiles<2>(args, decoder);
      case 3:
      case 4: return bf16_tiles<4>(args, decoder);
      case 5:
      case 6: return bf16_tiles<6>(args, decoder);
      default: return bf16_tiles<8>(args, decoder);
    }
  });
}

}  // namespace octalane::vnni
