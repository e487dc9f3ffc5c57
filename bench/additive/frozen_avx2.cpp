#include <immintrin.h>

#include <algorithm>

#include "additive/frozen.h"

namespace octalane::bench {
namespace {

constexpr int kRows = 16, kPanelCols = 512, kTogether = 6;

__m256 load_scales(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

/// fp32 to the nearest bfloat16, ties to even; finite values.
__m256 round_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  return _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

void transpose(__m256 (&v)[8]) {
  __m256 pairs[8], quads[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
  }
  for (int half = 0; half < 8; half += 4) {
    for (int i = 0; i < 2; ++i) {
      quads[half + 2 * i] = _mm256_shuffle_ps(pairs[half + i], pairs[half + 2 + i], 0x44);
      quads[half + 2 * i + 1] = _mm256_shuffle_ps(pairs[half + i], pairs[half + 2 + i], 0xEE);
    }
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

/// Columns [first, end) of one record of a tile -> panel[column][16 rows].
void decode(const PackedView& w, const std::byte* record, float* panel) {
  const int books = w.spec.code.books;
  for (int column = 0; column < w.record.cols; column += 8) {
    const auto* const codes = reinterpret_cast<const uint8_t*>(record) + column / 8 * kRows * books;
    const std::byte* const scales = record + w.record.scale + column / w.spec.scale.group * kRows * 2;
    for (int half = 0; half < 2; ++half) {
      __m256 v[8];
      for (int r = 0; r < 8; ++r) {
        const uint8_t* const code = codes + (half * 8 + r) * books;
        v[r] = _mm256_loadu_ps(w.codebooks.values + code[0] * 8);
        if (books == 2) v[r] = _mm256_add_ps(v[r], _mm256_loadu_ps(w.codebooks.values + (kCodewords + code[1]) * 8));
      }
      transpose(v);
      const __m256 scale = load_scales(scales + half * 16);
      for (int c = 0; c < 8; ++c) {
        _mm256_store_ps(panel + (column + c) * kRows + half * 8, round_to_bf16(_mm256_mul_ps(scale, v[c])));
      }
    }
  }
}

template <int Tokens>
void multiply(const float* panel, int64_t cols, const float* x, int64_t stride, __m256 (*sums)[2]) {
  __m256 y[Tokens][2];
  for (int m = 0; m < Tokens; ++m) y[m][0] = sums[m][0], y[m][1] = sums[m][1];
  for (int64_t k = 0; k < cols; ++k) {
    const __m256 low = _mm256_load_ps(panel + k * kRows), high = _mm256_load_ps(panel + k * kRows + 8);
#pragma GCC unroll 6
    for (int m = 0; m < Tokens; ++m) {
      const __m256 token = _mm256_broadcast_ss(x + m * stride + k);
      y[m][0] = _mm256_fmadd_ps(low, token, y[m][0]);
      y[m][1] = _mm256_fmadd_ps(high, token, y[m][1]);
    }
  }
  for (int m = 0; m < Tokens; ++m) sums[m][0] = y[m][0], sums[m][1] = y[m][1];
}

/// One tile of weights times 16 tokens, or what is left of them.
void multiply_tile(const MatmulArgs& args, int64_t tile, int64_t token, int64_t tokens) {
  const PackedView& w = args.w;
  auto* const panel = reinterpret_cast<float*>(args.scratch);
  __m256 sums[kFrozenTokens][2] = {};
  const int64_t together = kPanelCols / w.record.cols;
  for (int64_t record = 0; record < w.records; record += together) {
    const int64_t count = std::min(together, w.records - record), cols = count * w.record.cols;
    for (int64_t r = 0; r < count; ++r) decode(w, w.at(tile, record + r), panel + r * w.record.cols * kRows);
    const float* const x = args.x.f32 + token * args.x.stride + record * w.record.cols;
    int64_t m = 0;
    for (; m + kTogether <= tokens; m += kTogether) {
      multiply<kTogether>(panel, cols, x + m * args.x.stride, args.x.stride, sums + m);
    }
    for (; m + 4 <= tokens; m += 4) multiply<4>(panel, cols, x + m * args.x.stride, args.x.stride, sums + m);
    for (; m < tokens; ++m) multiply<1>(panel, cols, x + m * args.x.stride, args.x.stride, sums + m);
  }
  for (int64_t m = 0; m < tokens; ++m) {
    alignas(32) float row[kRows];
    _mm256_store_ps(row, sums[m][0]);
    _mm256_store_ps(row + 8, sums[m][1]);
    std::copy_n(row, std::min<int64_t>(kRows, w.rows - tile * kRows), args.y.row(token + m) + tile * kRows);
  }
}

}  // namespace

void frozen_bf16_gemm(const MatmulArgs& args) {
  for (int64_t token = 0; token < args.x.rows; token += kFrozenTokens) {
    const int64_t tokens = std::min(kFrozenTokens, args.x.rows - token);
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) multiply_tile(args, tile, token, tokens);
  }
}

}  // namespace octalane::bench
