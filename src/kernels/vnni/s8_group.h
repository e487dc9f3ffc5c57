// The arithmetic of s8.group, shared by gemm and gemv: the drain of a group.
#pragma once

#include "kernels/vnni/dots.h"

namespace octalane::vnni {
namespace {

/// t + the scales of a group times its sums and dots: fma(bias, R, t), then fma(scale, D, .).
OCTALANE_INLINE __m512 drain(const GroupScales& scales, bool has_bias, const std::byte* sum, __m512i dot, __m512 t) {
  if (leaves_out(Ablation::no_drain)) {
    keep(dot);
    return t;
  }
  if (has_bias) t = _mm512_fmadd_ps(scales.bias, broadcast_f32(sum), t);
  return _mm512_fmadd_ps(scales.scale, _mm512_cvtepi32_ps(dot), t);
}

/// visit(tile i, token m) for all of them, tile by tile, with the scales of `group` of each tile.
template <int Tiles, int T, class Source, class Visit>
OCTALANE_INLINE void for_each_dot(const Source (&sources)[Tiles], int group, const Visit& visit) {
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const GroupScales scales = sources[i.value].scales(group);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { visit(scales, i.value, m.value); });
  });
}

/// y += the product of T tokens with `cols` columns of Tiles tiles, which the sources serve: a decoded panel or a
/// packed record. `x` is a token stream; returns its end. Each output is one chain in ascending K. Split: two weight
/// groups to an activation group, else one.
template <bool Split, int Tiles, int T, class Source>
OCTALANE_INLINE const std::byte* add_product(const Source (&sources)[Tiles], int cols, const ScaleSpec& spec,
                                             const std::byte* x, __m512 (&y)[Tiles][T]) {
  const int blocks_per_group = Split ? 1 : spec.group / kBlockCols;
  const bool has_bias = spec.has_bias;
  int group = 0;
  for (int block = 0; block < cols / kBlockCols; block += blocks_per_group) {
    for (int i = 0; i < Tiles; ++i) sources[i].prefetch(block, blocks_per_group);
    __m512 terms[Tiles][T];
    if constexpr (Split) {
      const std::byte* const sums = x + 4 * T;
      __m512i dots[Tiles][T];
      dot_group<0, 4>(sources, block, 1, x, dots);
      for_each_dot<Tiles, T>(sources, group++, [&](const GroupScales& scales, int i, int m) OCTALANE_INLINE_LAMBDA {
        terms[i][m] = drain(scales, has_bias, sums + 4 * m, dots[i][m], _mm512_setzero_ps());
      });
    }
    const std::byte* const sums = x + 4 * T;
    __m512i dots[Tiles][T];
    dot_group<Split ? 4 : 0, Split ? 4 : 8>(sources, block, blocks_per_group, x, dots);
    for_each_dot<Tiles, T>(sources, group++, [&](const GroupScales& scales, int i, int m) OCTALANE_INLINE_LAMBDA {
      const __m512 before = Split ? terms[i][m] : _mm512_setzero_ps();
      const __m512 t = drain(scales, has_bias, sums + 4 * m, dots[i][m], before);
      if (!leaves_out(Ablation::no_drain)) y[i][m] = _mm512_fmadd_ps(broadcast_f32(x + 4 * m), t, y[i][m]);
    });
    x += 4 * T;
  }
  return x;
}

}  // namespace
}  // namespace octalane::vnni
