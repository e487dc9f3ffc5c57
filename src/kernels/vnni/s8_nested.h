// The arithmetic of s8.nested, shared by gemm and gemv: dots times sub-scales add up in int32, and a super-group drains
// once.
#pragma once

#include "kernels/vnni/dots.h"

namespace octalane::vnni {
namespace {

/// Sub-minima of groups 2 p and 2 p + 1 as pairs of int16, the operand that meets Sums::pairs.
OCTALANE_INLINE __m512i min_pair(const PackedView& w, const std::byte* record, int p) {
  const std::byte* const from = record + w.record.sub_min + 2 * p * kRows;
  const __m512i first = _mm512_cvtepi8_epi32(load_quarter(from));
  if (2 * p + 1 == w.record.groups) return _mm512_and_si512(first, _mm512_set1_epi32(0xFFFF));
  const __m512i second = _mm512_slli_epi32(_mm512_cvtepi8_epi32(load_quarter(from + kRows)), 16);
  return _mm512_mask_blend_epi16(0xAAAAAAAA, first, second);
}

OCTALANE_INLINE __m512i sub_scale(const PackedView& w, const std::byte* record, int g) {
  return _mm512_cvtepi8_epi32(load_quarter(record + w.record.sub_scale + g * kRows));
}

/// Scale and bias of a super-group; bias only when it has one.
OCTALANE_INLINE GroupScales super_scales(const PackedView& w, const std::byte* record) {
  const ScaleSpec& s = w.spec.scale;
  GroupScales g{load_scales(s.type, record + w.record.scale, 0), _mm512_setzero_ps()};
  if (s.has_bias) g.bias = load_scales(s.type, record + w.record.bias, 0);
  return g;
}

/// products += the sub-scales of a group times its dots.
template <int Tiles, int T, class Source>
OCTALANE_INLINE void add_scaled(const Source (&sources)[Tiles], int group, const __m512i (&dots)[Tiles][T],
                                __m512i (&products)[Tiles][T]) {
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const __m512i scale = sources[i.value].sub_scale(group);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
      const __m512i scaled = _mm512_mullo_epi32(dots[i.value][m.value], scale);
      products[i.value][m.value] = _mm512_add_epi32(products[i.value][m.value], scaled);
    });
  });
}

/// y += the product of T tokens with one super-group of Tiles tiles, which the sources serve. `x` is a token stream
/// with pairs of sums; returns its end. Split: groups of 16 columns.
template <bool Split, int Tiles, int T, class Source>
OCTALANE_INLINE const std::byte* add_super(const Source (&sources)[Tiles], const ScaleSpec& spec, const std::byte* x,
                                           __m512 (&y)[Tiles][T]) {
  const int blocks_per_group = Split ? 1 : spec.group / kBlockCols;
  const int groups = spec.super / spec.group;
  const std::byte* sums = x + 4 * T;
  const int64_t sums_stride = 2 * T * (8 + spec.group);  // of pairs: two seeds, sums and codes
  __m512i products[Tiles][T] = {};
  int group = 0;
  for (int block = 0; block < spec.super / kBlockCols; block += blocks_per_group) {
    for (int i = 0; i < Tiles; ++i) sources[i].prefetch(block, blocks_per_group);
    __m512i dots[Tiles][T];
    if constexpr (Split) {
      dot_group<0, 4>(sources, block, 1, x, dots);
      add_scaled<Tiles, T>(sources, group++, dots, products);
    }
    dot_group<Split ? 4 : 0, Split ? 4 : 8>(sources, block, blocks_per_group, x, dots);
    add_scaled<Tiles, T>(sources, group++, dots, products);
  }
  __m512i minima[Tiles][T] = {};
  if (spec.has_bias) {
    for (int pair = 0; 2 * pair < groups; ++pair, sums += sums_stride) {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        const __m512i minimum = sources[i.value].min_pair(pair);
        unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
          __m512i& sum = minima[i.value][m.value];
          sum = _mm512_dpwssd_epi32(sum, minimum, broadcast_i32(sums + 4 * m.value));
        });
      });
    }
  }
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const GroupScales scales = sources[i.value].scales();
    const __m512 minus_bias = negate(scales.bias);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
      __m512 t = _mm512_mul_ps(scales.scale, _mm512_cvtepi32_ps(products[i.value][m.value]));
      if (spec.has_bias) t = _mm512_fmadd_ps(minus_bias, _mm512_cvtepi32_ps(minima[i.value][m.value]), t);
      y[i.value][m.value] = _mm512_fmadd_ps(broadcast_f32(x + 4 * m.value), t, y[i.value][m.value]);
    });
  });
  return x + 4 * T;
}

}  // namespace
}  // namespace octalane::vnni
