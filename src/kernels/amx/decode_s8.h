// Packed weights -> right operands of the int8 product: [16 column quads][16 rows][4 columns] for every 64 columns,
// re-encoded as core/restage.h states, to the bit.
#pragma once

#include "core/restage.h"
#include "kernels/avx512bf16/decode.h"

namespace octalane::amx {
namespace {

using namespace vnni;
using namespace avx512bf16;

template <int Bits, bool Table>
class CodeDecoderS8 {
 public:
  /// `s8` holds the scales of the tile's units, [units][16]; a unit has `unit_blocks` blocks of 32 columns.
  OCTALANE_INLINE explicit CodeDecoderS8(const PackedView& w) : w_(w) {
    // Table codes are looked up as level + 128, so that all codes are unsigned bytes.
    table_ = level_table(w.spec.code);
    zero_ = _mm512_set1_epi32(Table ? 128 : w.spec.code.zero);
  }

  /// Blocks [begin, end) of 32 columns of a tile, two to an operand: blocks 2i and 2i + 1 go to out + i * stride.
  /// Precondition: begin is even. A missing second half is zeros.
  OCTALANE_INLINE void operator()(int64_t tile, int64_t begin, int64_t end, const float* s8, int64_t unit_blocks,
                                  std::byte* out, int64_t stride) const {
    const int group = w_.spec.scale.group;
    for_each_block(w_, tile, begin, end,
                   [&](const std::byte* block, const std::byte* record, int in_record, int64_t b)
                       OCTALANE_INLINE_LAMBDA {
                         std::byte* to = out + (b - begin) / 2 * stride + (b & 1) * 512;
                         const int column = in_record * kBlockCols;
                         const __m512 unit = _mm512_loadu_ps(s8 + b / unit_blocks * kRows);
                         Factors factors = factors_of(group_scales(w_, record, column / group), unit);
                         unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
                           if constexpr (q.value == 4) {
                             if (group == 16) factors = factors_of(group_scales(w_, record, column / 16 + 1), unit);
                           }
                           _mm512_store_si512(to + q.value * 64, quad<q.value>(block, factors));
                         });
                       });
    if ((end & 1) == 0) return;
    std::byte* rest = out + (end - begin) / 2 * stride + 512;
    for (int i = 0; i < 8; ++i) _mm512_store_si512(rest + i * 64, _mm512_setzero_si512());
  }

 private:
  /// S, and B - S * zero + 128, in both 16-bit halves of every row's lane.
  struct Factors {
    __m512i scale, offset;
  };
  OCTALANE_INLINE Factors factors_of(const GroupScales& group, __m512 s8) const {
    const __mmask16 positive = _mm512_cmp_ps_mask(s8, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 factor = _mm512_maskz_div_ps(positive, _mm512_set1_ps(256.0f), s8);
    const __m512i scale = _mm512_cvtps_epi32(_mm512_mul_ps(group.scale, factor));
    const __m512i bias = _mm512_cvtps_epi32(_mm512_mul_ps(group.bias, factor));
    const __m512i offset =
        _mm512_sub_epi32(_mm512_add_epi32(bias, _mm512_set1_epi32(128)), _mm512_mullo_epi32(scale, zero_));
    return {twice(scale), twice(offset)};
  }
  OCTALANE_INLINE static __m512i twice(__m512i low) {
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, low, _mm512_slli_epi32(low, 16));
  }

  template <int Quad>
  OCTALANE_INLINE __m512i quad(const std::byte* block, const Factors& f) const {
    __m512i codes = unpack_quad<Bits, Quad>(block);
    if constexpr (Table) codes = _mm512_shuffle_epi8(table_, codes);
    const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(codes, 8);
    const __m512i low = _mm512_add_epi16(_mm512_mullo_epi16(even, f.scale), f.offset);
    const __m512i high = _mm512_add_epi16(_mm512_mullo_epi16(odd, f.scale), f.offset);
    return _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAull, _mm512_srli_epi16(low, 8), high);
  }

  const PackedView& w_;
  __m512i table_, zero_;
};

}  // namespace
}  // namespace octalane::amx
