// s8.group: exact codes, a drain per group.
#pragma once

#include "kernels/tiles/codebook.h"
#include "kernels/tiles/dots.h"
#include "kernels/tiles/gemm.h"

namespace octalane::tiles {
namespace {

/// t + the scales of a group times its sums and dots: fma(bias, R, t), then fma(scale, D, .).
template <class V, class Scales>
OCTALANE_INLINE typename V::Floats drain(const Scales& scales, bool has_bias, const std::byte* sum,
                                         typename V::Ints dot, typename V::Floats t) {
  if (leaves_out(Ablation::no_drain)) {
    V::keep(dot);
    return t;
  }
  if (has_bias) t = V::fma(scales.bias, V::all_f32(sum), t);
  return V::fma(scales.scale, V::to_floats(dot), t);
}

/// visit(scales, tile i, token m) for all of them, tile by tile, with the scales of `group` of each tile.
template <int Tiles, int T, class Source, class Visit>
OCTALANE_INLINE void for_each_dot(const Source (&sources)[Tiles], int group, const Visit& visit) {
  unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
    const auto scales = sources[i.value].scales(group);
    unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { visit(scales, i.value, m.value); });
  });
}

/// y += the product of T tokens with `cols` columns of Tiles tiles, which the sources serve: a decoded panel or a
/// packed record. `x` is a token stream; returns its end. Each output is one chain in ascending K. Split: two weight
/// groups to an activation group, else one.
template <class V, bool Split, int Tiles, int T, class Source>
OCTALANE_INLINE const std::byte* add_groups(const Source (&sources)[Tiles], int cols, const ScaleSpec& spec,
                                            const std::byte* x, typename V::Floats (&y)[Tiles][T]) {
  const int blocks_per_group = Split ? 1 : spec.group / kBlockCols;
  const bool has_bias = spec.has_bias;
  int group = 0;
  for (int block = 0; block < cols / kBlockCols; block += blocks_per_group) {
    for (int i = 0; i < Tiles; ++i) sources[i].prefetch(block, blocks_per_group);
    typename V::Floats terms[Tiles][T];
    if constexpr (Split) {
      const std::byte* const sums = x + 4 * T;
      typename V::Ints dots[Tiles][T];
      dot_group<V, 0, 4>(sources, block, 1, x, dots);
      for_each_dot<Tiles, T>(sources, group++, [&](const auto& scales, int i, int m) OCTALANE_INLINE_LAMBDA {
        terms[i][m] = drain<V>(scales, has_bias, sums + 4 * m, dots[i][m], V::zero_floats());
      });
    }
    const std::byte* const sums = x + 4 * T;
    typename V::Ints dots[Tiles][T];
    dot_group<V, Split ? 4 : 0, Split ? 4 : 8>(sources, block, blocks_per_group, x, dots);
    for_each_dot<Tiles, T>(sources, group++, [&](const auto& scales, int i, int m) OCTALANE_INLINE_LAMBDA {
      const auto before = Split ? terms[i][m] : V::zero_floats();
      const auto t = drain<V>(scales, has_bias, sums + 4 * m, dots[i][m], before);
      if (!leaves_out(Ablation::no_drain)) y[i][m] = V::fma(V::all_f32(x + 4 * m), t, y[i][m]);
    });
    x += 4 * T;
  }
  return x;
}

/// One tile's codes at 8 bits, fp32 scale and bias per group of at least 16 columns.
template <class V>
struct GroupPanel {
  alignas(64) int8_t codes[V::kS8PanelCols / 4][kRows][4];
  alignas(64) float scale[V::kS8PanelCols / 16][kRows];
  alignas(64) float bias[V::kS8PanelCols / 16][kRows];
};

/// Serves add_groups from a panel.
template <class V>
struct GroupPanelSource {
  const GroupPanel<V>* panel;
  NextLines* next;

  template <int Quad>
  OCTALANE_INLINE typename V::Ints quad(int block) const {
    return V::load_ints(panel->codes[block * 8 + Quad]);
  }
  OCTALANE_INLINE typename V::Scales scales(int g) const {
    return {V::load_floats(panel->scale[g]), V::load_floats(panel->bias[g])};
  }
  OCTALANE_INLINE void prefetch(int, int blocks) const { next->fetch(blocks); }
};

/// Serves add_groups from a packed record.
template <class V, class Stager>
struct GroupRecordSource {
  const Stager& stager;
  const PackedView& w;
  const std::byte* record;
  int block_lines;  ///< to fetch

  template <int Quad>
  OCTALANE_INLINE typename V::Ints quad(int block) const {
    return stager.template quad<Quad>(record + block * w.record.block_bytes);
  }
  OCTALANE_INLINE typename V::Scales scales(int g) const { return V::group_scales(w, record, g); }
  OCTALANE_INLINE void prefetch(int block, int blocks) const {
    prefetch_ahead(record + block * block_lines * 64, blocks * block_lines);
  }
};

/// `count` records of a tile, from `record` on -> the panel.
template <class V, class Stager>
void decode_groups(const PackedView& w, const std::byte* record, int count, GroupPanel<V>& panel) {
  const Stager stager(w);
  const int blocks = w.record.cols / kBlockCols, groups = w.record.groups;
  const bool has_bias = w.spec.scale.has_bias;
  int quad = 0, group = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < blocks; ++b, quad += 8) {
      const std::byte* const block = record + b * w.record.block_bytes;
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        V::store(panel.codes[quad + q.value], stager.template quad<q.value>(block));
      });
    }
    for (int g = 0; g < groups; ++g, ++group) {
      const auto scales = V::group_scales(w, record, g);
      V::store(panel.scale[group], scales.scale);
      if (has_bias) V::store(panel.bias[group], scales.bias);
    }
  }
}

/// The same for codebook weights: levels plus 128.
template <class V, int Books, int Vector>
void decode_codebook_groups(const PackedView& w, const std::byte* record, int count, GroupPanel<V>& panel) {
  const auto unit = V::all_f32(reinterpret_cast<const std::byte*>(&w.codebooks.unit));
  int quad = 0, group = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < w.record.cols / kBlockCols; ++b, quad += 8) {
      decode_codebook_block<Books, Vector>(w.codebooks.fixed, record + b * w.record.block_bytes, 128,
                                           panel.codes + quad);
    }
    for (int g = 0; g < w.record.groups; ++g, ++group) {
      V::store(panel.scale[group], V::times(V::group_scales(w, record, g).scale, unit));
    }
  }
}

template <class Vectors, bool Split>
struct S8GroupLane {
  using V = Vectors;
  using Panel = GroupPanel<V>;
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
    write_tokens<T, Sums::f32>(args.x, token, column, cols, fold, to);
  }
  template <int Tiles, int T>
  OCTALANE_INLINE const std::byte* multiply(const Panel* panels, int cols, const std::byte* x,
                                            NextLines (&next)[V::kTiles], typename V::Floats (&y)[Tiles][T]) const {
    GroupPanelSource<V> sources[Tiles];
    for (int i = 0; i < Tiles; ++i) sources[i] = {panels + i, next + i};
    return add_groups<V, Split, Tiles, T>(sources, cols, args.w.spec.scale, x, y);
  }
};

template <class V, bool Split>
void s8_group_gemm(const MatmulArgs& args) {
  S8GroupLane<V, Split> lane{args, nullptr, 0, {args.x.groups}};
  if (!Split && args.w.spec.code.is_codebook()) {
    lane.fold = 128;
    with_codebooks(args.w.spec.code, [&](auto books, auto vector) {
      lane.decode_panel = decode_codebook_groups<V, books.value, vector.value>;
    });
  } else {
    with_stager<V>(args.w, [&]<class Stager>(const Stager& stager) {
      lane.decode_panel = decode_groups<V, Stager>;
      lane.fold = stager.fold();
    });
  }
  Gemm(lane, args).run();
}

template <class V>
OCTALANE_INLINE void s8_group_gemm(const MatmulArgs& args) {
  if (args.w.spec.scale.group < kBlockCols) return s8_group_gemm<V, true>(args);
  s8_group_gemm<V, false>(args);
}

template <class V>
OCTALANE_INLINE int64_t s8_group_gemm_scratch(const Problem& problem) {
  const TokenStream stream{token_groups(problem.weights.scale)};
  const int64_t cols = padded_cols(problem.weights, problem.cols);
  return Scratch<S8GroupLane<V, false>>::bytes(stream, problem.weights, problem.tokens, cols);
}

/// Weights are decoded in registers, straight from the packed stream, and never stored.
template <class V, class Shape, bool Split, class Stager>
[[gnu::noinline]] void s8_group_tiles(const MatmulArgs& args, const Stager& stager) {
  constexpr int T = Shape::T, kBlocks = Shape::kBlocks;
  write_blocks<Shape, Sums::f32>(args, stager.fold());
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
        const GroupRecordSource<V, Stager> source[1] = {{stager, args.w, args.w.at(tile, r), lines}};
        x[b.value] = add_groups<V, Split, 1, T>(source, args.w.record.cols, args.w.spec.scale, x[b.value], y[b.value]);
      });
    }
    unroll<kBlocks>([&](auto b)
                        OCTALANE_INLINE_LAMBDA { write_outputs<V, 1, T>(args, tile, b.value * T, y[b.value]); });
  }
}

template <class V>
OCTALANE_INLINE void s8_group_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_stager<V>(args.w, [&](const auto& stager) {
    with_gemv_shape<V>(args.x.rows, [&]<class Shape>(const Shape&) {
      if (args.w.spec.scale.group < kBlockCols) return s8_group_tiles<V, Shape, true>(args, stager);
      s8_group_tiles<V, Shape, false>(args, stager);
    });
  });
}

template <class V>
OCTALANE_INLINE int64_t s8_group_gemv_scratch(const Problem& problem) {
  const WeightSpec& w = problem.weights;
  return TokenStream{token_groups(w.scale)}.bytes(V::kGemvTokens * V::kGemvBlocks, padded_cols(w, problem.cols));
}

}  // namespace
}  // namespace octalane::tiles
