#include "kernels/avx2/codebook.h"
#include "kernels/tiles/gemm.h"
#include "kernels/tiles/tokens.h"
#include "kernels/vnni/decode.h"
#include "kernels/vnni/vectors.h"

namespace octalane::vnni {
namespace {

/// One tile's weights: bfloat16 values at fp32 width.
struct FloatPanel {
  alignas(64) float weights[kBf16PanelCols][kRows];
};

/// Tokens as [column][T].
struct FloatStream {
  OCTALANE_INLINE int64_t bytes(int tokens, int64_t cols) const { return tokens * cols * 4; }
};

template <class Decoder>
void decode_panel(const PackedView& w, const std::byte* record, int count, FloatPanel& panel) {
  const Decoder decoder(w);
  float* to = panel.weights[0];
  for (int r = 0; r < count; ++r, record += w.record.bytes, to += w.record.cols * kRows) {
    const std::byte* const records[1] = {record};
    const auto store = [to](auto, int column, __m512 weights)
                           OCTALANE_INLINE_LAMBDA { _mm512_store_ps(to + column * kRows, weights); };
    decoder.record(
        records, [](int) OCTALANE_INLINE_LAMBDA {}, store);
  }
}

template <int Books, int Vector>
void decode_codebook_panel(const PackedView& w, const std::byte* record, int count, FloatPanel& panel) {
  const avx2::CodebookDecoder<Books, Vector> decoder(w);
  float* to = panel.weights[0];
  for (int r = 0; r < count; ++r, record += w.record.bytes, to += w.record.cols * kRows) {
    decoder.record(record, [to](int column, const avx2::Pair& weights) OCTALANE_INLINE_LAMBDA {
      _mm256_store_ps(to + column * kRows, weights.v[0]);
      _mm256_store_ps(to + column * kRows + 8, weights.v[1]);
    });
  }
}

struct Bf16Lane {
  using V = Vectors;
  using Panel = FloatPanel;
  using Stream = FloatStream;
  static constexpr int kPanelCols = kBf16PanelCols, kTokens = kBf16Tokens, kLeastTokens = kLeastBf16Tokens;

  const MatmulArgs& args;
  void (*decode_panel)(const PackedView&, const std::byte*, int, FloatPanel&);
  FloatStream stream;

  OCTALANE_INLINE void decode(const std::byte* record, int count, FloatPanel& panel) const {
    decode_panel(args.w, record, count, panel);
  }
  template <int T>
  OCTALANE_INLINE void write(int64_t token, int64_t column, int64_t cols, std::byte* to) const {
    const std::byte* rows[T];
    for (int m = 0; m < T; ++m) {
      const int64_t row = token + m < args.x.rows ? token + m : args.x.rows - 1;
      rows[m] = reinterpret_cast<const std::byte*>(args.x.f32 + row * args.x.stride + column);
    }
    tiles::interleave<T>(rows, cols * 4, to);
  }
  template <int Tiles, int T>
  OCTALANE_INLINE const std::byte* multiply(const FloatPanel* panels, int cols, const std::byte* x,
                                            tiles::NextLines (&next)[V::kTiles], __m512 (&y)[Tiles][T]) const {
    for (int k = 0; k < cols; ++k, x += 4 * T) {
      if (k % kBlockCols == 0) {
        for (tiles::NextLines& lines : next) lines.fetch(1);
      }
      __m512 weights[Tiles];
      unroll<Tiles>([&](auto i)
                        OCTALANE_INLINE_LAMBDA { weights[i.value] = _mm512_load_ps(panels[i.value].weights[k]); });
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
        const __m512 token = broadcast_token(x + 4 * m.value);
        unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
          y[i.value][m.value] = _mm512_fmadd_ps(weights[i.value], token, y[i.value][m.value]);
        });
      });
    }
    return x;
  }
};

}  // namespace

void bf16_gemm(const MatmulArgs& args) {
  Bf16Lane lane{args, nullptr, {}};
  if (args.w.spec.code.is_codebook()) {
    tiles::with_codebooks(args.w.spec.code, [&](auto books, auto vector) {
      lane.decode_panel = decode_codebook_panel<books.value, vector.value>;
    });
  } else {
    with_decoder(args.w, [&]<class Decoder>(const Decoder&) { lane.decode_panel = decode_panel<Decoder>; });
  }
  tiles::Gemm(lane, args).run();
}

int64_t bf16_gemm_scratch(const Problem& problem) {
  return tiles::Scratch<Bf16Lane>::bytes({}, problem.weights, problem.tokens,
                                         tiles::padded_cols(problem.weights, problem.cols));
}

}  // namespace octalane::vnni
