#include "kernels/avx2/s8_group.h"
#include "kernels/tiles/codebook.h"

namespace octalane::avx2 {
namespace {

/// Serves add_product from a panel.
template <class DotType>
struct PanelSource {
  using Dot = DotType;
  const CodePanel& panel;
  bool has_bias;
  int fold_;

  template <int Quad>
  OCTALANE_INLINE __m256i quad(int block, int half) const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(panel.codes[block * 8 + Quad][half * 8]));
  }
  OCTALANE_INLINE GroupScales scales(int g) const {
    GroupScales s;
    s.scale = {{_mm256_load_ps(panel.scale[g]), _mm256_load_ps(panel.scale[g] + 8)}};
    if (has_bias) s.bias = {{_mm256_load_ps(panel.bias[g]), _mm256_load_ps(panel.bias[g] + 8)}};
    return s;
  }
  OCTALANE_INLINE int fold() const { return fold_; }
};

/// One record -> the panel, from column `column` of the panel on.
template <class Stager>
OCTALANE_INLINE void decode_record(const Stager& stager, const PackedView& w, const std::byte* record, int column,
                                   CodePanel& panel) {
  for (int b = 0; b < w.record.cols / kBlockCols; ++b) {
    const std::byte* block = record + b * w.record.block_bytes;
    unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
      int8_t(&to)[kRows][4] = panel.codes[column / 4 + b * 8 + q.value];
      for (int half = 0; half < 2; ++half) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to[half * 8]), stager.template quad<q.value>(block, half));
      }
    });
  }
  for (int g = 0; g < w.record.groups; ++g) {
    const GroupScales scales = group_scales(w, record, g);
    const int at = column / w.spec.scale.group + g;
    for (int half = 0; half < 2; ++half) {
      _mm256_store_ps(panel.scale[at] + half * 8, scales.scale.v[half]);
      if (w.spec.scale.has_bias) _mm256_store_ps(panel.bias[at] + half * 8, scales.bias.v[half]);
    }
  }
}

/// Stages codebook weights as the levels of core/codebook.h.
struct CodebookStager {
  using Dot = SignedDot;
  OCTALANE_INLINE int fold() const { return 0; }
};

OCTALANE_INLINE void decode_record(const CodebookStager&, const PackedView& w, const std::byte* record, int column,
                                   CodePanel& panel) {
  tiles::with_codebooks(w.spec.code, [&](auto books, auto vector) OCTALANE_INLINE_LAMBDA {
    for (int b = 0; b < w.record.cols / kBlockCols; ++b) {
      tiles::decode_codebook_block<books.value, vector.value>(w.codebooks.fixed, record + b * w.record.block_bytes, 0,
                                                              panel.codes + column / 4 + b * 8);
    }
  });
  const __m256 unit = _mm256_set1_ps(w.codebooks.unit);
  for (int g = 0; g < w.record.groups; ++g) {
    const Pair scale = times(group_scales(w, record, g).scale, {{unit, unit}});
    for (int half = 0; half < 2; ++half) {
      _mm256_store_ps(panel.scale[column / w.spec.scale.group + g] + half * 8, scale.v[half]);
    }
  }
}

/// y[M, rows of one tile] (+)= the product of M tokens and a panel; `first` starts from zero.
template <int M, class Source>
OCTALANE_INLINE void multiply(const Source& source, const ScaleSpec& spec, int cols, const Tokens& x, float* to,
                              int64_t y_stride, const TileRows& rows, bool first) {
  Pair y[M] = {};
  if (!first) {
    for (int i = 0; i < M; ++i) y[i] = rows.load(to + i * y_stride);
  }
  add_product<M>(source, cols, spec, x, y);
  for (int i = 0; i < M; ++i) rows.store(to + i * y_stride, y[i]);
}

/// All tokens against one panel, which begins at column `column`.
template <class Source>
void multiply_panel(const MatmulArgs& args, const Source& source, int64_t tile, int64_t column, int cols) {
  const TileRows rows(args.w.rows, tile);
  const ScaleSpec& spec = args.w.spec.scale;
  const int64_t stride = args.y.row_stride;
  float* y = args.y.data + tile * kRows;
  Tokens x(args.x, column);
  int64_t m = 0;
  for (; m + kS8Tokens <= args.x.rows; m += kS8Tokens) {
    multiply<kS8Tokens>(source, spec, cols, x, y + m * stride, stride, rows, column == 0);
    x.next_tokens(kS8Tokens);
  }
  for (; m < args.x.rows; ++m) {
    multiply<1>(source, spec, cols, x, y + m * stride, stride, rows, column == 0);
    x.next_tokens(1);
  }
}

}  // namespace

/// Loops as in bf16_gemm: columns outside, tiles inside, every code decoded once for all tokens.
void s8_group_gemm(const MatmulArgs& args) {
  const auto multiply = [&]<class Stager>(const Stager& stager) {
    auto& panel = *reinterpret_cast<CodePanel*>(args.scratch);
    const PanelSource<typename Stager::Dot> source{panel, args.w.spec.scale.has_bias, stager.fold()};
    const int record_cols = args.w.record.cols;
    const int records_per_panel = kCodePanelCols / record_cols;
    int64_t record = 0;
    do {
      const int64_t left = args.w.records - record;
      const int count = left < records_per_panel ? static_cast<int>(left) : records_per_panel;
      for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
        const bool decodes = decodes_panel(tile == args.tile_begin && record == 0);
        for (int r = 0; r < count && decodes; ++r) {
          decode_record(stager, args.w, args.w.at(tile, record + r), r * record_cols, panel);
        }
        multiply_panel(args, source, tile, record * record_cols, count * record_cols);
      }
      record += records_per_panel;
    } while (record < args.w.records);
  };
  if (args.w.spec.code.is_codebook()) return multiply(CodebookStager{});
  with_stager(args.w, multiply);
}

}  // namespace octalane::avx2
