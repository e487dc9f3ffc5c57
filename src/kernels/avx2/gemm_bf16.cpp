#include "kernels/avx2/decode.h"

namespace octalane::avx2 {
namespace {

/// y[Tokens, rows of one tile] (+)= x[Tokens, cols] panel[cols, 16]; `first` starts from zero.
template <int Tokens>
OCTALANE_INLINE void multiply(const float* panel, int64_t cols, const float* x, int64_t x_stride, float* y,
                              int64_t y_stride, const TileRows& rows, bool first) {
  Pair sum[Tokens];
  for (int m = 0; m < Tokens; ++m) {
    sum[m] = first ? Pair{{_mm256_setzero_ps(), _mm256_setzero_ps()}} : rows.load(y + m * y_stride);
  }
  for (int64_t k = 0; k < cols; ++k) {
    const __m256 low = _mm256_load_ps(panel + k * kRows);
    const __m256 high = _mm256_load_ps(panel + k * kRows + 8);
    unroll<Tokens>([&](auto m) OCTALANE_INLINE_LAMBDA {
      const __m256 token = broadcast_token(x + m.value * x_stride + k);
      sum[m.value].v[0] = _mm256_fmadd_ps(low, token, sum[m.value].v[0]);
      sum[m.value].v[1] = _mm256_fmadd_ps(high, token, sum[m.value].v[1]);
    });
  }
  for (int m = 0; m < Tokens; ++m) rows.store(y + m * y_stride, sum[m]);
}

/// All tokens against one panel, which begins at column `column`.
void multiply_panel(const MatmulArgs& args, const float* panel, int64_t tile, int64_t column, int64_t cols) {
  const TileRows rows(args.w.rows, tile);
  const bool first = column == 0;
  const float* x = args.x.f32 + column;
  float* y = args.y.data + tile * kRows;
  const int64_t xs = args.x.stride, ys = args.y.row_stride;
  int64_t m = 0;
  for (; m + kBf16Tokens <= args.x.rows; m += kBf16Tokens) {
    multiply<kBf16Tokens>(panel, cols, x + m * xs, xs, y + m * ys, ys, rows, first);
  }
  x += m * xs;
  y += m * ys;
  switch (args.x.rows - m) {
    case 1: return multiply<1>(panel, cols, x, xs, y, ys, rows, first);
    case 2: return multiply<2>(panel, cols, x, xs, y, ys, rows, first);
    case 3: return multiply<3>(panel, cols, x, xs, y, ys, rows, first);
    case 4: return multiply<4>(panel, cols, x, xs, y, ys, rows, first);
    case 5: return multiply<5>(panel, cols, x, xs, y, ys, rows, first);
    default: return;
  }
}

}  // namespace

/// Columns outside, tiles inside: the activations of a panel's columns stay in cache while the weights stream by, and
/// every weight is decoded once for all tokens. y carries the sums from panel to panel, as fp32 and so exactly.
void bf16_gemm(const MatmulArgs& args) {
  with_decoder(args.w, [&](const auto& decoder) {
    auto* const panel = reinterpret_cast<float*>(args.scratch);
    const int record_cols = args.w.record.cols;
    const int records_per_panel = kBf16PanelCols / record_cols;
    int64_t record = 0;
    do {
      const int64_t left = args.w.records - record;
      const int64_t count = left < records_per_panel ? left : records_per_panel;
      for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
        const bool decodes = decodes_panel(tile == args.tile_begin && record == 0);
        for (int64_t r = 0; r < count && decodes; ++r) {
          float* const to = panel + r * record_cols * kRows;
          decoder.record(args.w.at(tile, record + r), [to](int column, const Pair& weights) OCTALANE_INLINE_LAMBDA {
            _mm256_store_ps(to + column * kRows, weights.v[0]);
            _mm256_store_ps(to + column * kRows + 8, weights.v[1]);
          });
        }
        multiply_panel(args, panel, tile, record * record_cols, count * record_cols);
      }
      record += records_per_panel;
    } while (record < args.w.records);
  });
}

}  // namespace octalane::avx2
