#include "kernels/amx/with_decoder_s8.h"

namespace octalane::amx {
namespace {

/// y = (D * token scale) * s8.
struct Scaled {
  float token_scale[kStripTokens];
  __m512 s8[2];
  OCTALANE_INLINE __m512 operator()(__m512i sums, int token, int half) const {
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(token_scale[token])), s8[half]);
  }
};

[[gnu::noinline]] void multiply(const MatmulArgs& args, const Decode& decode) {
  const auto convert_for = [&](int64_t tile, int64_t strip) OCTALANE_INLINE_LAMBDA {
    Scaled scaled;
    const int64_t first = strip * kStripTokens, left = args.x.rows - first;
    for (int half = 0; half < 2; ++half) {
      const int64_t count = left - 16 * half;
      const __mmask16 tokens = count >= 16 ? 0xFFFF : count > 0 ? static_cast<__mmask16>((1u << count) - 1u) : 0;
      _mm512_storeu_ps(scaled.token_scale + 16 * half,
                       _mm512_maskz_loadu_ps(tokens, args.x.scales + first + 16 * half));
      const int64_t at = tile + half < args.w.tiles ? tile + half : tile;
      scaled.s8[half] = _mm512_loadu_ps(args.restage + at * kRows);
    }
    return scaled;
  };
  gemm<S8>(args, s8_row_panels(args.x.rows, args.w.padded_cols()), decode, convert_for);
}

}  // namespace

void s8_row_gemm(const MatmulArgs& args) { with_decoder(args, 1, multiply); }

}  // namespace octalane::amx
