#include "kernels/vnni/gemm.h"
#include "kernels/vnni/s8_nested.h"

namespace octalane::vnni {
namespace {

/// One tile's codes at 8 bits, sub-scales at 32, pairs of sub-minima at 16, fp32 scale and bias per super-group of at
/// least 32 columns.
struct NestedPanel {
  alignas(64) int8_t codes[kS8PanelCols / 4][kRows][4];
  alignas(64) int32_t sub_scale[kS8PanelCols / 16][kRows];
  alignas(64) int32_t min_pair[kS8PanelCols / 32][kRows];
  alignas(64) float scale[kS8PanelCols / 32][kRows];
  alignas(64) float bias[kS8PanelCols / 32][kRows];
};

/// Serves add_super from a panel, from one of its super-groups on.
struct PanelSource {
  const int8_t (*codes)[kRows][4];
  const int32_t (*sub_scales)[kRows];
  const int32_t (*min_pairs)[kRows];
  const float *scale, *bias;

  OCTALANE_INLINE PanelSource() = default;
  OCTALANE_INLINE PanelSource(const NestedPanel& panel, int super, int super_cols, int groups)
      : codes(panel.codes + super * super_cols / 4),
        sub_scales(panel.sub_scale + super * groups),
        min_pairs(panel.min_pair + super * ((groups + 1) / 2)),
        scale(panel.scale[super]),
        bias(panel.bias[super]) {}

  template <int Quad>
  OCTALANE_INLINE __m512i quad(int block) const {
    return _mm512_load_si512(codes[block * 8 + Quad]);
  }
  OCTALANE_INLINE __m512i sub_scale(int g) const { return _mm512_load_si512(sub_scales[g]); }
  OCTALANE_INLINE __m512i min_pair(int p) const { return _mm512_load_si512(min_pairs[p]); }
  OCTALANE_INLINE GroupScales scales() const { return {_mm512_load_ps(scale), _mm512_load_ps(bias)}; }
  OCTALANE_INLINE void prefetch(int, int) const {}
};

/// `count` records (super-groups) of a tile, from `record` on -> the panel.
template <class Stager>
void decode_panel(const PackedView& w, const std::byte* record, int count, NestedPanel& panel) {
  const Stager stager(w);
  const int blocks = w.record.cols / kBlockCols, groups = w.record.groups, pairs = (groups + 1) / 2;
  const bool has_bias = w.spec.scale.has_bias;
  int quad = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < blocks; ++b, quad += 8) {
      const std::byte* const block = record + b * w.record.block_bytes;
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        _mm512_store_si512(panel.codes[quad + q.value], stager.template quad<q.value>(block));
      });
    }
    for (int g = 0; g < groups; ++g) _mm512_store_si512(panel.sub_scale[r * groups + g], sub_scale(w, record, g));
    for (int p = 0; has_bias && p < pairs; ++p) {
      _mm512_store_si512(panel.min_pair[r * pairs + p], min_pair(w, record, p));
    }
    const GroupScales scales = super_scales(w, record);
    _mm512_store_ps(panel.scale[r], scales.scale);
    _mm512_store_ps(panel.bias[r], scales.bias);
  }
}

template <bool Split>
struct S8NestedLane {
  using Panel = NestedPanel;
  using Stream = TokenStream;
  static constexpr int kPanelCols = kS8PanelCols, kTokens = kS8Tokens, kLeastTokens = kLeastS8Tokens;

  const MatmulArgs& args;
  void (*decode_panel)(const PackedView&, const std::byte*, int, NestedPanel&);
  int fold;
  TokenStream stream;

  OCTALANE_INLINE void decode(const std::byte* record, int count, NestedPanel& panel) const {
    decode_panel(args.w, record, count, panel);
  }
  template <int T>
  OCTALANE_INLINE void write(int64_t token, int64_t column, int64_t cols, std::byte* to) const {
    write_tokens<T, Sums::pairs>(args.x, token, column, cols, fold, to);
  }
  template <int Tiles, int T>
  OCTALANE_INLINE const std::byte* multiply(const NestedPanel* panels, int cols, const std::byte* x,
                                            __m512 (&y)[Tiles][T]) const {
    const ScaleSpec& scale = args.w.spec.scale;
    for (int super = 0; super * scale.super < cols; ++super) {
      PanelSource sources[Tiles];
      for (int i = 0; i < Tiles; ++i) sources[i] = {panels[i], super, scale.super, args.w.record.groups};
      x = add_super<Split, Tiles, T>(sources, scale, x, y);
    }
    return x;
  }
};

template <bool Split>
void gemm(const MatmulArgs& args) {
  S8NestedLane<Split> lane{args, nullptr, 0, {args.x.groups}};
  with_stager(args.w, [&]<class Stager>(const Stager& stager) {
    lane.decode_panel = decode_panel<Stager>;
    lane.fold = stager.fold();
  });
  Gemm(lane, args).run();
}

}  // namespace

void s8_nested_gemm(const MatmulArgs& args) {
  if (args.w.spec.scale.group < kBlockCols) return gemm<true>(args);
  gemm<false>(args);
}

int64_t s8_nested_gemm_scratch(const Problem& problem) {
  const TokenStream stream{nested_groups(problem.weights.scale)};
  return Scratch<S8NestedLane<false>>::bytes(stream, problem.tokens, padded_cols(problem.weights, problem.cols));
}

}  // namespace octalane::vnni
