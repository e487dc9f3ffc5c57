// Exact integer dots of unsigned codes and int8 activations, shared by s8.group and s8.nested.
#pragma once

#include "core/ablation.h"
#include "core/unroll.h"
#include "kernels/kernel.h"
#include "kernels/tiles/tokens.h"

namespace octalane::tiles {
namespace {

/// Stages codes as unsigned bytes: the code, or table[code] + 128. level = staged - fold().
template <class V, int Bits, bool IsTable>
class CodeStager {
 public:
  OCTALANE_INLINE explicit CodeStager(const PackedView& w) : fold_(IsTable ? 128 : w.spec.code.zero) {
    if constexpr (IsTable) table_ = V::table(w.spec.code);
  }

  template <int Quad>
  OCTALANE_INLINE typename V::Ints quad(const std::byte* block) const {
    const typename V::Ints codes = V::template unpack<Bits, Quad>(block);
    if constexpr (IsTable && !leaves_out(Ablation::no_decode)) return V::look_up(table_, codes);
    return codes;
  }
  OCTALANE_INLINE int fold() const { return fold_; }

 private:
  int fold_;
  typename V::Table table_;
};

/// body(stager) with the stager of these weights.
template <class V, class Body>
OCTALANE_INLINE void with_stager(const PackedView& w, const Body& body) {
  if (w.spec.code.map == CodeMap::table) return body(CodeStager<V, 4, true>(w));
  switch (w.spec.code.bits) {
    case 2: return body(CodeStager<V, 2, false>(w));
    case 3: return body(CodeStager<V, 3, false>(w));
    case 4: return body(CodeStager<V, 4, false>(w));
    case 5: return body(CodeStager<V, 5, false>(w));
    case 6: return body(CodeStager<V, 6, false>(w));
    default: return body(CodeStager<V, 8, false>(w));
  }
}

/// dots += quads [Begin, Begin + Count) of block `block`, Tiles x 16 rows times T tokens.
template <class V, int Begin, int Count, int Tiles, int T, class Source>
OCTALANE_INLINE void add_quads(const Source (&sources)[Tiles], int block, const std::byte* x,
                               typename V::Ints (&dots)[Tiles][T]) {
  unroll<Count>([&](auto q) OCTALANE_INLINE_LAMBDA {
    typename V::Ints weights[Tiles];
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      weights[i.value] = sources[i.value].template quad<Begin + q.value>(block);
    });
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
      const auto token = V::token_quad(x + (q.value * T + m.value) * 4);
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        dots[i.value][m.value] = V::dot(dots[i.value][m.value], weights[i.value], token);
      });
    });
  });
}

/// Dots of one weight group that lies in quads [Begin, Begin + Count) of each of `blocks` blocks. `x` points to the
/// seeds and is advanced past the codes.
template <class V, int Begin, int Count, int Tiles, int T, class Source>
OCTALANE_INLINE void dot_group(const Source (&sources)[Tiles], int block, int blocks, const std::byte*& x,
                               typename V::Ints (&dots)[Tiles][T]) {
  unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA { dots[i.value][m.value] = V::all_i32(x + 4 * m.value); });
  });
  x += 8 * T;
  for (const int end = block + blocks; block < end; ++block) {
    add_quads<V, Begin, Count>(sources, block, x, dots);
    x += Count * 4 * T;
  }
}

/// Tokens that a gemv multiplies with one record after another: Blocks blocks of T, each from registers.
template <int Tokens, int Count>
struct GemvShape {
  static constexpr int T = Tokens, kBlocks = Count;
};

/// body(GemvShape) for as many tokens, at most V::kGemvTokens * V::kGemvBlocks. Streams are padded to whole blocks.
template <class V, int T = 1, class Body>
OCTALANE_INLINE void with_gemv_shape(int64_t tokens, const Body& body) {
  if constexpr (T < V::kGemvTokens) {
    if (tokens > T) return with_gemv_shape<V, 2 * T>(tokens, body);
  } else if constexpr (V::kGemvBlocks == 2) {
    if (tokens > T + T / 2) return body(GemvShape<T, 2>{});
    if (tokens > T) return body(GemvShape<T * 3 / 4, 2>{});
  }
  body(GemvShape<T, 1>{});
}

/// Every block of tokens, all columns, one stream behind the other.
template <class Shape, Sums How>
OCTALANE_INLINE void write_blocks(const MatmulArgs& args, int fold) {
  const int64_t cols = args.w.padded_cols(), bytes = TokenStream{args.x.groups}.bytes(Shape::T, cols);
  for (int b = 0; b < Shape::kBlocks; ++b) {
    write_tokens<Shape::T, How>(args.x, b * Shape::T, 0, cols, fold, args.scratch + b * bytes);
  }
}

}  // namespace
}  // namespace octalane::tiles
