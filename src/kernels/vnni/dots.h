// Exact integer dots of unsigned codes and int8 activations, shared by s8.group and s8.nested.
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

}  // namespace
}  // namespace octalane::vnni
