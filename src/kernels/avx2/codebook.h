// Codebook weights -> bfloat16 weights at fp32 width, column by column, as kernels/avx2/decode.h does for others.
#pragma once

#include "kernels/avx2/unpack.h"
#include "kernels/tiles/codebook.h"

namespace octalane::avx2 {
namespace {

/// Eight rows of eight -> eight columns of eight.
OCTALANE_INLINE void transpose(__m256 (&v)[8]) {
  __m256 pairs[8], quads[8];
  unroll<4>([&](auto i) OCTALANE_INLINE_LAMBDA {
    pairs[2 * i.value] = _mm256_unpacklo_ps(v[2 * i.value], v[2 * i.value + 1]);
    pairs[2 * i.value + 1] = _mm256_unpackhi_ps(v[2 * i.value], v[2 * i.value + 1]);
  });
  unroll<2>([&](auto h) OCTALANE_INLINE_LAMBDA {
    constexpr int at = h.value * 4;
    unroll<2>([&](auto i) OCTALANE_INLINE_LAMBDA {
      quads[at + 2 * i.value] = _mm256_shuffle_ps(pairs[at + i.value], pairs[at + 2 + i.value], 0x44);
      quads[at + 2 * i.value + 1] = _mm256_shuffle_ps(pairs[at + i.value], pairs[at + 2 + i.value], 0xEE);
    });
  });
  unroll<4>([&](auto i) OCTALANE_INLINE_LAMBDA {
    v[i.value] = _mm256_permute2f128_ps(quads[i.value], quads[i.value + 4], 0x20);
    v[i.value + 4] = _mm256_permute2f128_ps(quads[i.value], quads[i.value + 4], 0x31);
  });
}

/// The fp32 sums of the codewords of one vector of columns for eight rows, one vector of rows per column.
template <int Books, int Vector>
OCTALANE_INLINE void codeword_columns(const float* books, const uint8_t* codes, __m256 (&columns)[Vector]) {
  const auto word = [&](int row, int book) OCTALANE_INLINE_LAMBDA {
    return tiles::codeword<Vector>(books, book, codes[row * Books + book]);
  };
  if constexpr (Vector == 8) {
    unroll<8>([&](auto r) OCTALANE_INLINE_LAMBDA {
      columns[r.value] = _mm256_loadu_ps(word(r.value, 0));
      if constexpr (Books == 2) columns[r.value] = _mm256_add_ps(columns[r.value], _mm256_loadu_ps(word(r.value, 1)));
    });
    transpose(columns);
  } else {
    // Rows r and r + 4 side by side: a transposition of four by four in each half.
    __m256 rows[4];
    unroll<4>([&](auto r) OCTALANE_INLINE_LAMBDA {
      const auto both = [&](int book) OCTALANE_INLINE_LAMBDA {
        return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(word(r.value, book))),
                                    _mm_loadu_ps(word(r.value + 4, book)), 1);
      };
      rows[r.value] = both(0);
      if constexpr (Books == 2) rows[r.value] = _mm256_add_ps(rows[r.value], both(1));
    });
    const __m256 a = _mm256_unpacklo_ps(rows[0], rows[1]), b = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 c = _mm256_unpacklo_ps(rows[2], rows[3]), d = _mm256_unpackhi_ps(rows[2], rows[3]);
    columns[0] = _mm256_shuffle_ps(a, c, 0x44);
    columns[1] = _mm256_shuffle_ps(a, c, 0xEE);
    columns[2] = _mm256_shuffle_ps(b, d, 0x44);
    columns[3] = _mm256_shuffle_ps(b, d, 0xEE);
  }
}

/// Codewords are halves and scales are halves: a weight is 0 or of [2^-48, 2^33], unless its scale is not finite.
template <int Books, int Vector>
class CodebookDecoder {
 public:
  OCTALANE_INLINE explicit CodebookDecoder(const PackedView& w) : w_(w) {}

  template <class Sink>
  OCTALANE_INLINE void record(const std::byte* record, const Sink& sink) const {
    for (int b = 0; b < w_.record.cols / kBlockCols; ++b) block(record, b, sink);
  }

  /// The 32 columns of block b of a record.
  template <class Sink>
  OCTALANE_INLINE void block(const std::byte* record, int b, const Sink& sink) const {
    const int first = b * kBlockCols;
    const Pair scale = load_scales(w_.spec.scale.type, record + w_.record.scale, first / w_.spec.scale.group * kRows);
    const bool finite = is_finite(scale);
    for (int column = first; column < first + kBlockCols; column += Vector) {
      Pair columns[Vector];
      decode(record, column, scale, finite, columns);
      unroll<Vector>([&](auto c) OCTALANE_INLINE_LAMBDA { sink(column + c.value, columns[c.value]); });
    }
  }

 private:
  OCTALANE_INLINE static bool is_finite(const Pair& scale) {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 none = _mm256_or_ps(_mm256_mul_ps(scale.v[0], zero), _mm256_mul_ps(scale.v[1], zero));
    return _mm256_movemask_ps(_mm256_cmp_ps(none, none, _CMP_UNORD_Q)) == 0;
  }

  OCTALANE_INLINE void decode(const std::byte* record, int column, const Pair& scale, bool finite,
                              Pair (&out)[Vector]) const {
    const auto* const codes = reinterpret_cast<const uint8_t*>(record) + column / Vector * kRows * Books;
    unroll<2>([&](auto half) OCTALANE_INLINE_LAMBDA {
      __m256 columns[Vector];
      codeword_columns<Books, Vector>(w_.codebooks.values, codes + half.value * 8 * Books, columns);
      unroll<Vector>([&](auto c) OCTALANE_INLINE_LAMBDA {
        const __m256 weight = _mm256_mul_ps(scale.v[half.value], columns[c.value]);
        out[c.value].v[half.value] = round_to_bf16_in_range(weight);
        if (__builtin_expect(!finite, 0)) out[c.value].v[half.value] = round_to_bf16(weight);
      });
    });
  }

  PackedView w_;
};

}  // namespace
}  // namespace octalane::avx2
