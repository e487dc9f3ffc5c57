// From accumulators to y. Writing y costs more than anything done to it on the way, so a finished strip of 32 tokens
// waits in a staging buffer and leaves one line at a time between the products of the next strip.
#pragma once

#include "kernels/amx/panels.h"
#include "kernels/avx512bf16/decode.h"

namespace octalane::amx {
namespace {

using namespace vnni;
using namespace avx512bf16;

/// Lines of a strip on their way to y.
class Drip {
 public:
  /// `staged` is [32][pairs * 32]; its columns are y's from column0 on, of which `cols` exist.
  OCTALANE_INLINE void start(const float* staged, int64_t pairs, MatrixView<float> y, int64_t row0, int64_t column0,
                             int64_t cols) {
    staged_ = staged;
    lines_ = (cols + kRows - 1) / kRows;
    stride_ = pairs * kPairRows;
    const int64_t rows = y.rows - row0 < kStripTokens ? y.rows - row0 : kStripTokens;
    left_ = rows * lines_;
    line_ = 0;
    y_ = y.row(row0) + column0;
    row_stride_ = y.row_stride;
    last_mask_ = static_cast<__mmask16>(0xFFFFu >> (lines_ * kRows - cols));
    // Lines that fill a cache line each go past the caches: nobody reads them soon.
    aligned_ = reinterpret_cast<uintptr_t>(y_) % 64 == 0 && row_stride_ % kRows == 0;
    wait_ = 8;  // the last block of the strip is converted during the first steps of what follows
  }

  OCTALANE_INLINE void step() {
    if (wait_ > 0) {
      --wait_;
    } else if (left_ > 0) {
      write();
    }
  }

  OCTALANE_INLINE void flush() {
    wait_ = 0;
    while (left_ > 0) write();
  }

 private:
  OCTALANE_INLINE void write() {
    const __m512 value = _mm512_load_ps(staged_ + line_ * kRows);
    float* to = y_ + line_ * kRows;
    const bool last = ++line_ == lines_;
    if (leaves_out(Ablation::no_store)) {
      keep(value);
    } else if (last && last_mask_ != 0xFFFF) {
      _mm512_mask_storeu_ps(to, last_mask_, value);
    } else if (aligned_) {
      _mm512_stream_ps(to, value);
    } else {
      _mm512_storeu_ps(to, value);
    }
    --left_;
    if (!last) return;
    line_ = 0;
    staged_ += stride_;
    y_ += row_stride_;
  }

  const float* staged_ = nullptr;
  float* y_ = nullptr;
  int64_t lines_ = 0, line_ = 0, left_ = 0, stride_ = 0, row_stride_ = 0;
  int wait_ = 0;
  __mmask16 last_mask_ = 0;
  bool aligned_ = false;
};

/// One block of accumulators, [4 tiles][16 tokens][16 rows], that is to be converted into staging. Tiles are
/// tokens 0-15 x rows 0-15, tokens 0-15 x rows 16-31, tokens 16-31 x rows 0-15, tokens 16-31 x rows 16-31.
template <class Convert>
struct Finish {
  const std::byte* block = nullptr;  ///< null: nothing to do
  float* staged = nullptr;           ///< of the block's first token and row
  int64_t stride = 0;
  Convert convert;  ///< (accumulators of one token, token of the strip, half of the pair) -> outputs

  OCTALANE_INLINE void tile(int q) const {
    if (leaves_out(Ablation::no_drain)) return;
    const std::byte* from = block + q * kStepTile;
    for (int r = 0; r < 16; ++r) {
      const int token = (q >> 1) * 16 + r;
      const __m512 y = convert(_mm512_load_si512(from + r * 64), token, q & 1);
      _mm512_store_ps(staged + token * stride + (q & 1) * kRows, y);
    }
  }
};

/// The columns of y that tiles [tile, end) have.
OCTALANE_INLINE int64_t output_columns(const MatmulArgs& args, int64_t tile, int64_t end) {
  const int64_t rows = end * kRows < args.w.rows ? end * kRows : args.w.rows;
  return rows - tile * kRows;
}

/// y = 0 for the tiles asked for: a product over no columns.
OCTALANE_INLINE void clear_outputs(const MatmulArgs& args) {
  const int64_t first = args.tile_begin * kRows;
  for (int64_t m = 0; m < args.x.rows; ++m) {
    for (int64_t n = 0; n < output_columns(args, args.tile_begin, args.tile_end); ++n) args.y(m, first + n) = 0.0f;
  }
}

}  // namespace
}  // namespace octalane::amx
