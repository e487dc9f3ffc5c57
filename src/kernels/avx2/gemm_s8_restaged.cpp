// s8.row, s8.xblock and s8.block: a panel of 1024 columns of a tile is re-encoded into L1 and meets all tokens, two at
// a time; what a token has so far waits in the scratch.
#include "core/restage.h"
#include "kernels/avx2/s8_group.h"

namespace octalane::avx2 {
namespace {

struct Panel {
  alignas(64) int8_t codes[kCodePanelCols / 4][kRows][4];
};

/// S, and B - S * zero + 128 of core/restage.h, in both 16-bit halves of the lanes of eight rows.
struct Factors {
  __m256i scale[2], offset[2];

  OCTALANE_INLINE static __m256i twice(__m256i low) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(low, 16), 0xAA);
  }
  OCTALANE_INLINE Factors(const GroupScales& group, bool has_bias, const float* s8, int zero) {
    for (int half = 0; half < 2; ++half) {
      const __m256 unit = _mm256_loadu_ps(s8 + half * 8);
      const __m256 positive = _mm256_cmp_ps(unit, _mm256_setzero_ps(), _CMP_GT_OQ);
      const __m256 factor = _mm256_and_ps(positive, _mm256_div_ps(_mm256_set1_ps(256.0f), unit));
      const __m256i s = _mm256_cvtps_epi32(_mm256_mul_ps(group.scale.v[half], factor));
      __m256i o = _mm256_set1_epi32(128);
      if (has_bias) o = _mm256_add_epi32(o, _mm256_cvtps_epi32(_mm256_mul_ps(group.bias.v[half], factor)));
      scale[half] = twice(s);
      offset[half] = twice(_mm256_sub_epi32(o, _mm256_mullo_epi32(s, _mm256_set1_epi32(zero))));
    }
  }
};

/// Re-encodes codes of one width.
template <int Bits, bool Table>
class Restager {
 public:
  OCTALANE_INLINE explicit Restager(const PackedView& w) : w_(w), zero_(Table ? 128 : w.spec.code.zero) {
    table_ = level_table(w.spec.code, 128);  // as level + 128, so that all codes are unsigned bytes
  }

  /// One record of a tile -> the panel, from its column `column` on; the units' scales of the record start at s8.
  OCTALANE_INLINE void record(const std::byte* record, const float* s8, int column, Panel& panel) const {
    const int group = w_.spec.scale.group;
    const auto factors_of = [&](int g) OCTALANE_INLINE_LAMBDA {
      return Factors(group_scales(w_, record, g), w_.spec.scale.has_bias, s8, zero_);
    };
    for (int b = 0; b < w_.record.cols / kBlockCols; ++b) {
      const std::byte* block = record + b * w_.record.block_bytes;
      Factors factors = factors_of(b * kBlockCols / group);
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        if constexpr (q.value == 4) {
          if (group == 16) factors = factors_of(b * 2 + 1);
        }
        int8_t(&to)[kRows][4] = panel.codes[column / 4 + b * 8 + q.value];
        for (int half = 0; half < 2; ++half) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(to[half * 8]), quad<q.value>(block, half, factors));
        }
      });
    }
  }

 private:
  template <int Quad>
  OCTALANE_INLINE __m256i quad(const std::byte* block, int half, const Factors& f) const {
    __m256i codes = unpack_quad<Bits, Quad>(block, half);
    if constexpr (Table) codes = _mm256_shuffle_epi8(table_, codes);
    const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(codes, 8);
    const __m256i low = _mm256_add_epi16(_mm256_mullo_epi16(even, f.scale[half]), f.offset[half]);
    const __m256i high = _mm256_add_epi16(_mm256_mullo_epi16(odd, f.scale[half]), f.offset[half]);
    const __m256i top = _mm256_and_si256(high, _mm256_set1_epi16(static_cast<int16_t>(0xFF00)));
    return _mm256_or_si256(_mm256_srli_epi16(low, 8), top);
  }

  const PackedView& w_;
  const int zero_;
  __m256i table_;
};

/// What a token has of a tile's sixteen rows: int32 sums or fp32 ones.
struct alignas(64) Sums {
  __m256 v[2];
};

/// How dots become an output. `add` takes those of a unit of kUnit columns, the unit's number, the token's scales and
/// the tile's s8 (unit by unit); `finish` makes the output.
struct RowLane {
  static constexpr int kUnit = kCodePanelCols;  // as far as a panel goes: its sums stay int32
  OCTALANE_INLINE static __m256 add(__m256i dot, __m256 sum, int64_t, const float*, const float*) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), dot));
  }
  OCTALANE_INLINE static __m256 finish(__m256 sum, const float* scales, const float* s8) {
    const __m256 dot = _mm256_cvtepi32_ps(_mm256_castps_si256(sum));
    return _mm256_mul_ps(_mm256_mul_ps(dot, _mm256_broadcast_ss(scales)), _mm256_loadu_ps(s8));
  }
};

struct XBlockLane {
  static constexpr int kUnit = kRestageBlock;
  OCTALANE_INLINE static __m256 add(__m256i dot, __m256 sum, int64_t unit, const float* scales, const float*) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(scales + unit), sum);
  }
  OCTALANE_INLINE static __m256 finish(__m256 sum, const float*, const float* s8) {
    return _mm256_mul_ps(sum, _mm256_loadu_ps(s8));
  }
};

struct BlockLane {
  static constexpr int kUnit = kRestageBlock;
  OCTALANE_INLINE static __m256 add(__m256i dot, __m256 sum, int64_t unit, const float* scales, const float* s8) {
    const __m256 weighted = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_loadu_ps(s8 + unit * kRows));
    return _mm256_fmadd_ps(weighted, _mm256_broadcast_ss(scales + unit), sum);
  }
  OCTALANE_INLINE static __m256 finish(__m256 sum, const float*, const float*) { return sum; }
};

/// One tile on its way past the tokens.
struct Tile {
  const MatmulArgs& args;
  int64_t index;
  const float* s8;
  const Panel& panel;
  Sums* sums;  ///< one per token
};

/// Tokens m to m + M times `cols` columns of the panel, which begins at column `begin`.
template <class Lane, int M>
OCTALANE_INLINE void multiply(const Tile& tile, int64_t m, int64_t begin, int cols) {
  const ActivationsView& x = tile.args.x;
  const int8_t* codes = x.codes + m * x.stride + begin;
  const int64_t scales_stride = x.groups.scales(x.stride);
  const float* scales = x.scales + m * scales_stride;
  Sums sums[M];
  for (int i = 0; i < M; ++i) sums[i] = tile.sums[m + i];
  for (int c = 0; c < cols;) {
    const int64_t unit = (begin + c) / Lane::kUnit;
    const int end = cols < c + Lane::kUnit ? cols : c + Lane::kUnit;
    __m256i dots[M][2] = {};
    for (; c < end; c += 16) {
      const auto weights = [&](auto q, int half) OCTALANE_INLINE_LAMBDA {
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(tile.panel.codes[c / 4 + q.value][half * 8]));
      };
      SignedDot::add<M>(weights, codes + c, x.stride, dots);
    }
    unroll<M>([&](auto i) OCTALANE_INLINE_LAMBDA {
      for (int half = 0; half < 2; ++half) {
        sums[i.value].v[half] = Lane::add(dots[i.value][half], sums[i.value].v[half], unit,
                                          scales + i.value * scales_stride, tile.s8 + half * 8);
      }
    });
  }
  for (int i = 0; i < M; ++i) tile.sums[m + i] = sums[i];
}

template <class Lane>
void write(const Tile& tile) {
  const ActivationsView& x = tile.args.x;
  const TileRows rows(tile.args.w.rows, tile.index);
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* scales = x.scales + m * x.groups.scales(x.stride);
    Pair y;
    for (int half = 0; half < 2; ++half) {
      y.v[half] = Lane::finish(tile.sums[m].v[half], scales, tile.s8 + half * 8);
    }
    rows.store(tile.args.y.row(m) + tile.index * kRows, y);
  }
}

template <class Lane>
void multiply_panel(const Tile& tile, int64_t begin, int cols) {
  int64_t m = 0;
  for (; m + kS8Tokens <= tile.args.x.rows; m += kS8Tokens) multiply<Lane, kS8Tokens>(tile, m, begin, cols);
  for (; m < tile.args.x.rows; ++m) multiply<Lane, 1>(tile, m, begin, cols);
}

/// `unit_cols`: columns that share an s8.
template <class Lane, class Stager>
void gemm(const MatmulArgs& args, int64_t unit_cols, const Stager& stager) {
  const PackedView& w = args.w;
  auto& panel = *reinterpret_cast<Panel*>(args.scratch);
  auto* const sums = reinterpret_cast<Sums*>(args.scratch + sizeof(Panel));
  const int64_t units = (w.cols + unit_cols - 1) / unit_cols;
  for (int64_t t = args.tile_begin; t < args.tile_end; ++t) {
    const Tile tile{args, t, args.restage + t * units * kRows, panel, sums};
    for (int64_t m = 0; m < args.x.rows; ++m) sums[m] = {};
    for (int64_t begin = 0; begin < w.padded_cols(); begin += kCodePanelCols) {
      const int64_t left = w.padded_cols() - begin;
      const int cols = left < kCodePanelCols ? static_cast<int>(left) : kCodePanelCols;
      for (int c = 0; c < cols && decodes_panel(t == args.tile_begin && begin == 0); c += w.record.cols) {
        const float* s8 = tile.s8 + (begin + c) / unit_cols * kRows;
        stager.record(w.at(t, (begin + c) / w.record.cols), s8, c, panel);
      }
      multiply_panel<Lane>(tile, begin, cols);
    }
    write<Lane>(tile);
  }
}

template <class Lane>
void gemm(const MatmulArgs& args, int64_t unit_cols) {
  if (args.w.spec.code.map == CodeMap::table) return gemm<Lane>(args, unit_cols, Restager<4, true>(args.w));
  switch (args.w.spec.code.bits) {
    case 2: return gemm<Lane>(args, unit_cols, Restager<2, false>(args.w));
    case 3: return gemm<Lane>(args, unit_cols, Restager<3, false>(args.w));
    case 4: return gemm<Lane>(args, unit_cols, Restager<4, false>(args.w));
    case 5: return gemm<Lane>(args, unit_cols, Restager<5, false>(args.w));
    default: return gemm<Lane>(args, unit_cols, Restager<6, false>(args.w));
  }
}

}  // namespace

void s8_row_gemm(const MatmulArgs& args) { gemm<RowLane>(args, kWholeRow); }
void s8_xblock_gemm(const MatmulArgs& args) { gemm<XBlockLane>(args, kWholeRow); }
void s8_block_gemm(const MatmulArgs& args) { gemm<BlockLane>(args, kRestageBlock); }

int64_t s8_restaged_scratch(const Problem& problem) {
  return static_cast<int64_t>(sizeof(Panel)) + problem.tokens * static_cast<int64_t>(sizeof(Sums));
}

}  // namespace octalane::avx2
