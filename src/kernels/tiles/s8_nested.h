// s8.nested: dots times sub-scales add up in int32, and a super-group drains once.
#pragma once

#include "kernels/tiles/dots.h"
#include "kernels/tiles/gemm.h"

namespace octalane::tiles {
namespace {

/// products += the sub-scales of a group times its dots.
template <class V, int Tiles, int T, class Source>
OCTALANE_INLINE void add_scaled(const Source (&sources)[Tiles], int group, const typename V::Ints (&dots)[Tiles][T],
                                typename V::Ints (&products)[Tiles][T]) {
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const auto scale = sources[i.value].sub_scale(group);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
      if (leaves_out(Ablation::no_drain)) return V::keep(dots[i.value][m.value]);
      const auto scaled = V::times(dots[i.value][m.value], scale);
      products[i.value][m.value] = V::plus(products[i.value][m.value], scaled);
    });
  });
}

/// minima += the sub-minima of all groups times the sums of the tokens, which begin at `sums`.
template <class V, int Tiles, int T, class Source>
OCTALANE_INLINE void add_minima(const Source (&sources)[Tiles], int groups, const std::byte* sums, int64_t sums_stride,
                                typename V::Ints (&minima)[Tiles][T]) {
  for (int pair = 0; 2 * pair < groups; ++pair, sums += sums_stride) {
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      const auto minimum = sources[i.value].min_pair(pair);
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
        minima[i.value][m.value] = V::pair_dot(minima[i.value][m.value], minimum, V::all_i32(sums + 4 * m.value));
      });
    });
  }
}

/// y += the product of T tokens with one super-group of Tiles tiles, which the sources serve. `x` is a token stream
/// with pairs of sums; returns its end. Split: groups of 16 columns.
template <class V, bool Split, int Tiles, int T, class Source>
OCTALANE_INLINE const std::byte* add_super(const Source (&sources)[Tiles], const ScaleSpec& spec, const std::byte* x,
                                           typename V::Floats (&y)[Tiles][T]) {
  using Ints = typename V::Ints;
  const int blocks_per_group = Split ? 1 : spec.group / kBlockCols;
  const std::byte* const sums = x + 4 * T;
  const auto clear = [](Ints(&sum)[Tiles][T]) OCTALANE_INLINE_LAMBDA {
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { sum[i.value][m.value] = V::zero_ints(); });
    });
  };
  Ints products[Tiles][T];
  clear(products);
  int group = 0;
  for (int block = 0; block < spec.super / kBlockCols; block += blocks_per_group) {
    for (int i = 0; i < Tiles; ++i) sources[i].prefetch(block, blocks_per_group);
    Ints dots[Tiles][T];
    if constexpr (Split) {
      dot_group<V, 0, 4>(sources, block, 1, x, dots);
      add_scaled<V, Tiles, T>(sources, group++, dots, products);
    }
    dot_group<V, Split ? 4 : 0, Split ? 4 : 8>(sources, block, blocks_per_group, x, dots);
    add_scaled<V, Tiles, T>(sources, group++, dots, products);
  }
  if (leaves_out(Ablation::no_drain)) return x + 4 * T;
  Ints minima[Tiles][T];
  clear(minima);
  const int64_t pair_bytes = 2 * T * (8 + spec.group);  // two seeds, sums and codes
  if (spec.has_bias) add_minima<V, Tiles, T>(sources, group, sums, pair_bytes, minima);
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const auto scales = sources[i.value].scales();
    const auto minus_bias = V::negate(scales.bias);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
      auto t = V::times(scales.scale, V::to_floats(products[i.value][m.value]));
      if (spec.has_bias) t = V::fma(minus_bias, V::to_floats(minima[i.value][m.value]), t);
      y[i.value][m.value] = V::fma(V::all_f32(x + 4 * m.value), t, y[i.value][m.value]);
    });
  });
  return x + 4 * T;
}

/// One tile's codes at 8 bits, sub-scales at 32, pairs of sub-minima at 16, fp32 scale and bias per super-group of at
/// least 32 columns.
template <class V>
struct NestedPanel {
  alignas(64) int8_t codes[V::kS8PanelCols / 4][kRows][4];
  alignas(64) int32_t sub_scale[V::kS8PanelCols / 16][kRows];
  alignas(64) int32_t min_pair[V::kS8PanelCols / 32][kRows];
  alignas(64) float scale[V::kS8PanelCols / 32][kRows];
  alignas(64) float bias[V::kS8PanelCols / 32][kRows];
};

/// Serves add_super from one super-group of a panel.
template <class V>
struct NestedPanelSource {
  const NestedPanel<V>* panel;
  int super, quads, groups;  ///< which, and how many each has
  NextLines* next;

  template <int Quad>
  OCTALANE_INLINE typename V::Ints quad(int block) const {
    return V::load_ints(panel->codes[super * quads + block * 8 + Quad]);
  }
  OCTALANE_INLINE typename V::Ints sub_scale(int g) const { return V::load_ints(panel->sub_scale[super * groups + g]); }
  OCTALANE_INLINE typename V::Ints min_pair(int p) const {
    return V::load_ints(panel->min_pair[super * ((groups + 1) / 2) + p]);
  }
  OCTALANE_INLINE typename V::Scales scales() const {
    return {V::load_floats(panel->scale[super]), V::load_floats(panel->bias[super])};
  }
  OCTALANE_INLINE void prefetch(int, int blocks) const { next->fetch(blocks); }
};

/// Serves add_super from a packed record.
template <class V, class Stager>
struct NestedRecordSource {
  const Stager& stager;
  const PackedView& w;
  const std::byte* record;
  int block_lines;  ///< to fetch

  template <int Quad>
  OCTALANE_INLINE typename V::Ints quad(int block) const {
    return stager.template quad<Quad>(record + block * w.record.block_bytes);
  }
  OCTALANE_INLINE typename V::Ints sub_scale(int g) const { return V::sub_scale(w, record, g); }
  OCTALANE_INLINE typename V::Ints min_pair(int p) const { return V::min_pair(w, record, p); }
  OCTALANE_INLINE typename V::Scales scales() const { return V::super_scales(w, record); }
  OCTALANE_INLINE void prefetch(int block, int blocks) const {
    prefetch_ahead(record + block * block_lines * 64, blocks * block_lines);
  }
};

/// `count` records (super-groups) of a tile, from `record` on -> the panel.
template <class V, class Stager>
void decode_supers(const PackedView& w, const std::byte* record, int count, NestedPanel<V>& panel) {
  const Stager stager(w);
  const int blocks = w.record.cols / kBlockCols, groups = w.record.groups, pairs = (groups + 1) / 2;
  const bool has_bias = w.spec.scale.has_bias;
  int quad = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < blocks; ++b, quad += 8) {
      const std::byte* const block = record + b * w.record.block_bytes;
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        V::store(panel.codes[quad + q.value], stager.template quad<q.value>(block));
      });
    }
    for (int g = 0; g < groups; ++g) V::store(panel.sub_scale[r * groups + g], V::sub_scale(w, record, g));
    for (int p = 0; has_bias && p < pairs; ++p) V::store(panel.min_pair[r * pairs + p], V::min_pair(w, record, p));
    const auto scales = V::super_scales(w, record);
    V::store(panel.scale[r], scales.scale);
    V::store(panel.bias[r], scales.bias);
  }
}

template <class Vectors, bool Split>
struct S8NestedLane {
  using V = Vectors;
  using Panel = NestedPanel<V>;
  using Stream = TokenStream;
  static constexpr int kPanelCols = V::kS8PanelCols, kTokens = V::kS8Tokens, kLeastTokens = V::kLeastS8Tokens;

  const MatmulArgs& args;
  void (*decode_panel)(const PackedView&, const std::byte*, int, Panel&);
  int fold;
  TokenStream stream;

  OCTALANE_INLINE void decode(const std::byte* record, int count, Panel& panel) const {
    decode_panel(args.w, record, count, panel);
  }
  template <int T>
  OCTALANE_INLINE void write(int64_t token, int64_t column, int64_t cols, std::byte* to) const {
    write_tokens<T, Sums::pairs>(args.x, token, column, cols, fold, to);
  }
  template <int Tiles, int T>
  OCTALANE_INLINE const std::byte* multiply(const Panel* panels, int cols, const std::byte* x,
                                            NextLines (&next)[V::kTiles], typename V::Floats (&y)[Tiles][T]) const {
    const ScaleSpec& scale = args.w.spec.scale;
    for (int super = 0; super * scale.super < cols; ++super) {
      NestedPanelSource<V> sources[Tiles];
      for (int i = 0; i < Tiles; ++i) {
        sources[i] = {panels + i, super, scale.super / 4, scale.super / scale.group, next + i};
      }
      x = add_super<V, Split, Tiles, T>(sources, scale, x, y);
    }
    return x;
  }
};

template <class V, bool Split>
void s8_nested_gemm(const MatmulArgs& args) {
  S8NestedLane<V, Split> lane{args, nullptr, 0, {args.x.groups}};
  with_stager<V>(args.w, [&]<class Stager>(const Stager& stager) {
    lane.decode_panel = decode_supers<V, Stager>;
    lane.fold = stager.fold();
  });
  Gemm(lane, args).run();
}

template <class V>
OCTALANE_INLINE void s8_nested_gemm(const MatmulArgs& args) {
  if (args.w.spec.scale.group < kBlockCols) return s8_nested_gemm<V, true>(args);
  s8_nested_gemm<V, false>(args);
}

template <class V>
OCTALANE_INLINE int64_t s8_nested_gemm_scratch(const Problem& problem) {
  const TokenStream stream{nested_groups(problem.weights.scale)};
  const int64_t cols = padded_cols(problem.weights, problem.cols);
  return Scratch<S8NestedLane<V, false>>::bytes(stream, problem.weights, problem.tokens, cols);
}

/// Weights are decoded in registers, straight from the packed stream, and never stored.
template <class V, class Shape, bool Split, class Stager>
[[gnu::noinline]] void s8_nested_tiles(const MatmulArgs& args, const Stager& stager) {
  constexpr int T = Shape::T, kBlocks = Shape::kBlocks;
  write_blocks<Shape, Sums::pairs>(args, stager.fold());
  const int64_t stream_bytes = TokenStream{args.x.groups}.bytes(T, args.w.padded_cols());
  const int block_lines = lines_per_block(args.w.record);
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    typename V::Floats y[kBlocks][1][T];
    const std::byte* x[kBlocks];
    unroll<kBlocks>([&](auto b) OCTALANE_INLINE_LAMBDA {
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { y[b.value][0][m.value] = V::zero_floats(); });
      x[b.value] = args.scratch + b.value * stream_bytes;
    });
    for (int64_t r = 0; r < args.w.records; ++r) {
      unroll<kBlocks>([&](auto b) OCTALANE_INLINE_LAMBDA {
        const int lines = b.value == 0 ? block_lines : 0;
        const NestedRecordSource<V, Stager> source[1] = {{stager, args.w, args.w.at(tile, r), lines}};
        x[b.value] = add_super<V, Split, 1, T>(source, args.w.spec.scale, x[b.value], y[b.value]);
      });
    }
    unroll<kBlocks>([&](auto b)
                        OCTALANE_INLINE_LAMBDA { write_outputs<V, 1, T>(args, tile, b.value * T, y[b.value]); });
  }
}

template <class V>
OCTALANE_INLINE void s8_nested_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_stager<V>(args.w, [&](const auto& stager) {
    with_gemv_shape<V>(args.x.rows, [&]<class Shape>(const Shape&) {
      if (args.w.spec.scale.group < kBlockCols) return s8_nested_tiles<V, Shape, true>(args, stager);
      s8_nested_tiles<V, Shape, false>(args, stager);
    });
  });
}

template <class V>
OCTALANE_INLINE int64_t s8_nested_gemv_scratch(const Problem& problem) {
  const WeightSpec& w = problem.weights;
  return TokenStream{nested_groups(w.scale)}.bytes(V::kGemvTokens * V::kGemvBlocks, padded_cols(w, problem.cols));
}

}  // namespace
}  // namespace octalane::tiles
