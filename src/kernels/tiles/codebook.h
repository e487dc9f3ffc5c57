// Codes of codebooks -> int8 levels in the order of a panel, [quad of columns][row][4]. See core/codebook.h for the
// arithmetic. SSE2, which all of x86 has: four rows of eight columns are one vector each and four operations.
#pragma once

#include <emmintrin.h>

#include "core/packed_view.h"
#include "core/unroll.h"
#include "kernels/tiles/vectors.h"

namespace octalane::tiles {
namespace {

/// A codeword. Indices of pointer width: an int costs another instruction for each code.
template <int Vector, class T>
OCTALANE_INLINE const T* codeword(const T* codebooks, int book, uint8_t code) {
  return codebooks + static_cast<size_t>(book) * kCodewords * Vector + static_cast<size_t>(code) * Vector;
}

/// int16 levels of two rows of four columns, or one of eight, from where their codes lie.
template <int Books, int Vector>
OCTALANE_INLINE __m128i codebook_levels(const int16_t* fixed, const uint8_t* codes) {
  __m128i sum = _mm_set1_epi16(64);
  unroll<Books>([&](auto b) OCTALANE_INLINE_LAMBDA {
    const auto word = [&](int row) OCTALANE_INLINE_LAMBDA {
      return codeword<Vector>(fixed, b.value, codes[row * Books + b.value]);
    };
    if constexpr (Vector == 8) {
      sum = _mm_add_epi16(sum, _mm_loadu_si128(reinterpret_cast<const __m128i*>(word(0))));
    } else {
      const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(word(0)));
      const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(word(1)));
      sum = _mm_add_epi16(sum, _mm_unpacklo_epi64(first, second));
    }
  });
  return _mm_srai_epi16(sum, 7);
}

/// One block of 32 columns; `flip` is added to every level without carry: 0, or 128 for unsigned bytes.
template <int Books, int Vector>
OCTALANE_INLINE void decode_codebook_block(const int16_t* fixed, const std::byte* block, int flip,
                                           int8_t (*quads)[kRows][4]) {
  const __m128i sign = _mm_set1_epi8(static_cast<char>(flip));
  const auto store = [&](int8_t(*to)[4], __m128i levels) OCTALANE_INLINE_LAMBDA {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_xor_si128(levels, sign));
  };
  for (int j = 0; j < kBlockCols / Vector; ++j) {
    const auto* const codes = reinterpret_cast<const uint8_t*>(block) + j * kRows * Books;
    unroll<kRows / 4>([&](auto quarter) OCTALANE_INLINE_LAMBDA {
      constexpr int row = quarter.value * 4;
      if constexpr (Vector == 8) {
        const auto levels = [&](int r) OCTALANE_INLINE_LAMBDA {
          return codebook_levels<Books, 8>(fixed, codes + (row + r) * Books);
        };
        const __m128 a = _mm_castsi128_ps(_mm_packs_epi16(levels(0), levels(1)));
        const __m128 b = _mm_castsi128_ps(_mm_packs_epi16(levels(2), levels(3)));
        store(quads[2 * j] + row, _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0))));
        store(quads[2 * j + 1] + row, _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1))));
      } else {
        const __m128i a = codebook_levels<Books, 4>(fixed, codes + row * Books);
        const __m128i b = codebook_levels<Books, 4>(fixed, codes + (row + 2) * Books);
        store(quads[j] + row, _mm_packs_epi16(a, b));
      }
    });
  }
}

/// body(Constant<books>, Constant<vector>) of these weights.
template <class Body>
OCTALANE_INLINE void with_codebooks(const CodeSpec& code, const Body& body) {
  if (code.vector == 8) {
    if (code.books == 2) return body(Constant<2>{}, Constant<8>{});
    return body(Constant<1>{}, Constant<8>{});
  }
  if (code.books == 2) return body(Constant<2>{}, Constant<4>{});
  body(Constant<1>{}, Constant<4>{});
}

}  // namespace
}  // namespace octalane::tiles
