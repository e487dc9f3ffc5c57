#include "kernels/vnni/gemm.h"
#include "kernels/vnni/s8_group.h"

namespace octalane::vnni {
namespace {

/// One tile's codes at 8 bits, fp32 scale and bias per group of at least 16 columns.
struct CodePanel {
  alignas(64) int8_t codes[kS8PanelCols / 4][kRows][4];
  alignas(64) float scale[kS8PanelCols / 16][kRows];
  alignas(64) float bias[kS8PanelCols / 16][kRows];
};

/// Serves add_product from a panel.
struct PanelSource {
  const CodePanel* panel;

  template <int Quad>
  OCTALANE_INLINE __m512i quad(int block) const {
    return _mm512_load_si512(panel->codes[block * 8 + Quad]);
  }
  OCTALANE_INLINE GroupScales scales(int g) const {
    return {_mm512_load_ps(panel->scale[g]), _mm512_load_ps(panel->bias[g])};
  }
  OCTALANE_INLINE void prefetch(int, int) const {}
};

/// `count` records of a tile, from `record` on -> the panel.
template <class Stager>
void decode_panel(const PackedView& w, const std::byte* record, int count, CodePanel& panel) {
  const Stager stager(w);
  const int blocks = w.record.cols / kBlockCols, groups = w.record.groups;
  const bool has_bias = w.spec.scale.has_bias;
  int quad = 0, group = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < blocks; ++b, quad += 8) {
      const std::byte* const block = record + b * w.record.block_bytes;
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        _mm512_store_si512(panel.codes[quad + q.value], stager.template quad<q.value>(block));
      });
    }
    for (int g = 0; g < groups; ++g, ++group) {
      const GroupScales scales = group_scales(w, record, g);
      _mm512_store_ps(panel.scale[group], scales.scale);
      if (has_bias) _mm512_store_ps(panel.bias[group], scales.bias);
    }
  }
}

template <bool Split>
struct S8GroupLane {
  using Panel = CodePanel;
  using Stream = TokenStream;
  static constexpr int kPanelCols = kS8PanelCols, kTokens = kS8Tokens, kLeastTokens = kLeastS8Tokens;

  const MatmulArgs& args;
  void (*decode_panel)(const PackedView&, const std::byte*, int, CodePanel&);
  int fold;
  TokenStream stream;

  OCTALANE_INLINE void decode(const std::byte* record, int count, CodePanel& panel) const {
    decode_panel(args.w, record, count, panel);
  }
  template <int T>
  OCTALANE_INLINE void write(int64_t token, int64_t column, int64_t cols, std::byte* to) const {
    write_tokens<T, Sums::f32>(args.x, token, column, cols, fold, to);
  }
  template <int Tiles, int T>
  OCTALANE_INLINE const std::byte* multiply(const CodePanel* panels, int cols, const std::byte* x,
                                            __m512 (&y)[Tiles][T]) const {
    PanelSource sources[Tiles];
    for (int i = 0; i < Tiles; ++i) sources[i].panel = panels + i;
    return add_product<Split, Tiles, T>(sources, cols, args.w.spec.scale, x, y);
  }
};

template <bool Split>
void gemm(const MatmulArgs& args) {
  S8GroupLane<Split> lane{args, nullptr, 0, {args.x.groups}};
  with_stager(args.w, [&]<class Stager>(const Stager& stager) {
    lane.decode_panel = decode_panel<Stager>;
    lane.fold = stager.fold();
  });
  Gemm(lane, args).run();
}

}  // namespace

void s8_group_gemm(const MatmulArgs& args) {
  if (args.w.spec.scale.group < kBlockCols) return gemm<true>(args);
  gemm<false>(args);
}

int64_t s8_group_gemm_scratch(const Problem& problem) {
  const TokenStream stream{token_groups(problem.weights.scale)};
  return Scratch<S8GroupLane<false>>::bytes(stream, problem.tokens, padded_cols(problem.weights, problem.cols));
}

}  // namespace octalane::vnni
