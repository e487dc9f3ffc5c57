// The arithmetic of s8.group, shared by gemm and gemv: exact dots of unsigned codes, and the drain of a group.
#pragma once

#include "kernels/vnni/tokens.h"
#include "kernels/vnni/unpack.h"

namespace octalane::vnni {
namespace {

/// Stages codes as unsigned bytes: the code, or table[code] + 128. level = staged - fold().
template <int Bits, bool Table>
class CodeStager {
 public:
  OCTALANE_INLINE explicit CodeStager(const PackedView& w) : fold_(Table ? 128 : w.spec.code.zero) {
    if constexpr (Table) table_ = level_table(w.spec.code);
  }

  template <int Quad>
  OCTALANE_INLINE __m512i quad(const std::byte* block) const {
    const __m512i codes = unpack_quad<Bits, Quad>(block);
    if constexpr (Table && !leaves_out(Ablation::no_decode)) return _mm512_shuffle_epi8(table_, codes);
    return codes;
  }
  OCTALANE_INLINE int fold() const { return fold_; }

 private:
  int fold_;
  __m512i table_;
};

/// body(stager) with the stager of these weights.
template <class Body>
OCTALANE_INLINE void with_stager(const PackedView& w, const Body& body) {
  if (w.spec.code.map == CodeMap::table) return body(CodeStager<4, true>(w));
  switch (w.spec.code.bits) {
    case 2: return body(CodeStager<2, false>(w));
    case 3: return body(CodeStager<3, false>(w));
    case 4: return body(CodeStager<4, false>(w));
    case 5: return body(CodeStager<5, false>(w));
    case 6: return body(CodeStager<6, false>(w));
    default: return body(CodeStager<8, false>(w));
  }
}

/// dots += four columns of Tiles x 16 rows times T tokens.
template <int Tiles, int T>
OCTALANE_INLINE void add_quad(const __m512i (&weights)[Tiles], const std::byte* x, __m512i (&dots)[Tiles][T]) {
  unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
    const __m512i token = broadcast_token_quad(x + 4 * m.value);
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      dots[i.value][m.value] = _mm512_dpbusd_epi32(dots[i.value][m.value], weights[i.value], token);
    });
  });
}

/// t + the scales of a group times its sums and dots: fma(bias, R, t), then fma(scale, D, .).
OCTALANE_INLINE __m512 drain(const GroupScales& scales, bool has_bias, const std::byte* sum, __m512i dot, __m512 t) {
  if (leaves_out(Ablation::no_drain)) {
    keep(dot);
    return t;
  }
  if (has_bias) t = _mm512_fmadd_ps(scales.bias, broadcast_f32(sum), t);
  return _mm512_fmadd_ps(scales.scale, _mm512_cvtepi32_ps(dot), t);
}

/// Quads [Begin, Begin + Count) of block `block`.
template <int Begin, int Count, int Tiles, int T, class Source>
OCTALANE_INLINE void add_quads(const Source (&sources)[Tiles], int block, const std::byte* x,
                               __m512i (&dots)[Tiles][T]) {
  unroll<Count>([&](auto q) OCTALANE_INLINE_LAMBDA {
    __m512i weights[Tiles];
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      weights[i.value] = sources[i.value].template quad<Begin + q.value>(block);
    });
    add_quad<Tiles, T>(weights, x + q.value * 4 * T, dots);
  });
}

/// Dots of one weight group that lies in quads [Begin, Begin + Count) of each of `blocks` blocks. `x` points to the
/// seeds and is advanced past the codes.
template <int Begin, int Count, int Tiles, int T, class Source>
OCTALANE_INLINE void dot_group(const Source (&sources)[Tiles], int block, int blocks, const std::byte*& x,
                               __m512i (&dots)[Tiles][T]) {
  unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA { dots[i.value][m.value] = broadcast_i32(x + 4 * m.value); });
  });
  x += 8 * T;
  for (const int end = block + blocks; block < end; ++block) {
    add_quads<Begin, Count>(sources, block, x, dots);
    x += Count * 4 * T;
  }
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
