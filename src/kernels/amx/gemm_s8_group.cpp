// s8.group: one product of 32 or 64 columns a group, its int32 sums drained into fp32 accumulators in L1 during the
// products of the next. Half a tile of columns takes as long as a whole one and the drain is longer than both, so this
// is no match for bf16; it is here for who wants the bits of s8.group.
#include "kernels/amx/output.h"
#include "kernels/amx/panels.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512bf16/decode.h"
#include "kernels/tiles/codebook.h"

namespace octalane::amx {
namespace {

/// One group of a pair of tiles as it is multiplied: [half][group / 4][16 rows][4 columns] levels, then fp32
/// [scale, bias][half][16 rows].
class Records {
 public:
  OCTALANE_INLINE Records(std::byte* panel, const GroupCut& cut) : panel_(panel), cut_(cut) {}
  OCTALANE_INLINE std::byte* at(int64_t g, int64_t pair) const {
    const int64_t slab = g / cut_.slab;
    return panel_ + ((slab * cut_.pairs + pair) * cut_.slab + g % cut_.slab) * cut_.record();
  }
  OCTALANE_INLINE float* scales(std::byte* record) const {
    return reinterpret_cast<float*>(record + kPairRows * cut_.group);
  }

 private:
  std::byte* panel_;
  const GroupCut& cut_;
};

/// Decodes groups [group0, group0 + depth) of tiles [tile, tile_end).
template <int Bits, bool Table>
void decode(const PackedView& w, const GroupCut& cut, int64_t tile, int64_t tile_end, int64_t group0, int64_t depth,
            std::byte* panel) {
  const Records records(panel, cut);
  const int blocks = cut.group / kBlockCols;  // of 32 columns, in a group
  const __m512i table = _mm512_broadcast_i32x4(load_quarter(&w.spec.code.table));
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(w.spec.code.zero));
  for (int64_t t = tile; t < tile_end; ++t) {
    const int64_t half = (t - tile) % 2;
    for_each_block(
        w, t, group0 * blocks, (group0 + depth) * blocks,
        [&](const std::byte* block, const std::byte* record, int in_record, int64_t b) OCTALANE_INLINE_LAMBDA {
          std::byte* out = records.at(b / blocks - group0, (t - tile) / 2);
          std::byte* levels = out + half * kRows * cut.group + b % blocks * (kBlockCols * kRows);
          unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
            const __m512i codes = unpack_quad<Bits, q.value>(block);
            const __m512i level = Table ? _mm512_shuffle_epi8(table, codes) : _mm512_sub_epi8(codes, zero);
            _mm512_store_si512(levels + q.value * kQuadBytes, level);
          });
          if (b % blocks != 0) return;
          const GroupScales scales = group_scales(w, record, in_record / blocks);
          _mm512_store_ps(records.scales(out) + half * kRows, scales.scale);
          _mm512_store_ps(records.scales(out) + kPairRows + half * kRows, scales.bias);
        });
  }
}

/// The same for codebook weights.
template <int Books, int Vector>
void decode_codebooks(const PackedView& w, const GroupCut& cut, int64_t tile, int64_t tile_end, int64_t group0,
                      int64_t depth, std::byte* panel) {
  const Records records(panel, cut);
  const int blocks = cut.group / kBlockCols;  // of 32 columns, in a group
  const __m512 unit = _mm512_set1_ps(w.codebooks.unit);
  for (int64_t t = tile; t < tile_end; ++t) {
    const int64_t half = (t - tile) % 2;
    for_each_block(w, t, group0 * blocks, (group0 + depth) * blocks,
                   [&](const std::byte* block, const std::byte* record, int in_record, int64_t b)
                       OCTALANE_INLINE_LAMBDA {
                         std::byte* const out = records.at(b / blocks - group0, (t - tile) / 2);
                         std::byte* const levels = out + half * kRows * cut.group + b % blocks * (kBlockCols * kRows);
                         tiles::decode_codebook_block<Books, Vector>(w.codebooks.fixed, block, 0,
                                                                     reinterpret_cast<int8_t(*)[kRows][4]>(levels));
                         if (b % blocks != 0) return;
                         const GroupScales scales = group_scales(w, record, in_record / blocks);
                         _mm512_store_ps(records.scales(out) + half * kRows, _mm512_mul_ps(scales.scale, unit));
                         _mm512_store_ps(records.scales(out) + kPairRows + half * kRows, _mm512_setzero_ps());
                       });
  }
}

using DecodeGroups = void (*)(const PackedView&, const GroupCut&, int64_t tile, int64_t tile_end, int64_t group0,
                              int64_t depth, std::byte* panel);

DecodeGroups decoder_for(const CodeSpec& code) {
  if (code.is_codebook()) {
    DecodeGroups decode_groups = nullptr;
    tiles::with_codebooks(
        code, [&](auto books, auto vector) { decode_groups = decode_codebooks<books.value, vector.value>; });
    return decode_groups;
  }
  if (code.map == CodeMap::table) return decode<4, true>;
  switch (code.bits) {
    case 2: return decode<2, false>;
    case 3: return decode<3, false>;
    case 4: return decode<4, false>;
    case 5: return decode<5, false>;
    case 6: return decode<6, false>;
    default: return decode<8, false>;
  }
}

/// Outputs as they are.
struct Plain {
  OCTALANE_INLINE __m512 operator()(__m512i y, int, int) const { return _mm512_castsi512_ps(y); }
};

/// The sums of one group: y = fma(token scale, fma(scale, D, bias * R), y).
struct Drain {
  const std::byte* sums = nullptr;  ///< null: nothing to do
  float* y = nullptr;
  const float* weights = nullptr;  ///< [scale, bias][half][16]
  const float* tokens = nullptr;   ///< [scale, sum of codes][32]
  bool first = false;              ///< y starts at 0

  OCTALANE_INLINE void tile(int q) const {
    if (leaves_out(Ablation::no_drain)) return;
    const __m512 scale = _mm512_load_ps(weights + (q & 1) * kRows);
    const __m512 bias = _mm512_load_ps(weights + kPairRows + (q & 1) * kRows);
    const float* token = tokens + (q >> 1) * 16;
    for (int r = 0; r < 16; ++r) {
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums + q * kStepTile + r * 64));
      float* to = y + q * kStepTile / 4 + r * 16;
      const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(to);
      const __m512 minimum = _mm512_mul_ps(bias, _mm512_set1_ps(token[kStripTokens + r]));
      const __m512 t = _mm512_fmadd_ps(scale, dot, minimum);
      _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(token[r]), t, before));
    }
  }
};

template <int Halves>
class GroupRunner {
 public:
  OCTALANE_INLINE GroupRunner(const MatmulArgs& args, const GroupCut& cut)
      : args_(args),
        cut_(cut),
        panel_(args.scratch),
        accumulators_(panel_ + cut.panel_bytes()),
        sums_(accumulators_ + cut.accumulator_bytes()),
        staging_(reinterpret_cast<float*>(sums_ + 2 * kBlock)),
        tokens_(staging_ + cut.staging_bytes() / 4),
        records_(panel_, cut) {}

  OCTALANE_INLINE void run() {
    const Tiles tiles(cut_.chunk());
    const DecodeGroups decode_groups = decoder_for(args_.w.spec.code);
    for (int64_t tile = args_.tile_begin; tile < args_.tile_end; tile += 2 * cut_.pairs) {
      const int64_t end = tile + 2 * cut_.pairs < args_.tile_end ? tile + 2 * cut_.pairs : args_.tile_end;
      for (int64_t group0 = 0; group0 < cut_.groups; group0 += cut_.depth) {
        const int64_t depth = cut_.groups - group0 < cut_.depth ? cut_.groups - group0 : cut_.depth;
        const bool first = tile == args_.tile_begin && group0 == 0;
        if (decodes_panel(first)) decode_groups(args_.w, cut_, tile, end, group0, depth, panel_);
        if (first && leaves_out(Ablation::no_activation_load)) load<4>(panel_), load<5>(panel_);
        for (int64_t strip = 0; strip < cut_.strips; ++strip) strip_of_panel(tile, end, group0, depth, strip);
      }
    }
    drip_.flush();
  }

 private:
  OCTALANE_INLINE std::byte* accumulators(int64_t strip, int64_t pair) const {
    return accumulators_ + ((cut_.whole() ? 0 : strip) * cut_.pairs + pair) * kBlock;
  }

  /// Scales and sums of a strip's tokens for the groups of a panel, [group][scale, sum][32].
  OCTALANE_INLINE void gather_tokens(int64_t strip, int64_t group0, int64_t depth) const {
    const ActivationsView& x = args_.x;
    for (int64_t t = 0; t < kStripTokens; ++t) {
      const int64_t m = strip * kStripTokens + t;
      const bool there = m < x.rows;
      const float* scales = x.scales + m * x.groups.scales(x.stride) + group0;
      const int32_t* sums = x.sums + m * x.groups.sums(x.stride) + group0;
      for (int64_t g = 0; g < depth; ++g) {
        float* to = tokens_ + g * 2 * kStripTokens + t;
        to[0] = there ? scales[g] : 0.0f;
        to[kStripTokens] = there ? static_cast<float>(sums[g]) : 0.0f;
      }
    }
  }

  OCTALANE_INLINE void strip_of_panel(int64_t tile, int64_t tile_end, int64_t group0, int64_t depth, int64_t strip) {
    const int64_t pairs = (tile_end - tile + 1) / 2;
    gather_tokens(strip, group0, depth);
    for (int64_t slab = 0; slab < depth; slab += cut_.slab) {
      const int64_t slab_end = slab + cut_.slab < depth ? slab + cut_.slab : depth;
      for (int64_t pair = 0; pair < pairs; ++pair) {
        auto* y = reinterpret_cast<float*>(accumulators(strip, pair));
        for (int64_t g = slab; g < slab_end; ++g) group(group0, g, pair, strip, y);
      }
    }
    drain_all();
    if (group0 + depth != cut_.groups) return;
    float* staged = staging_ + parity_ * (cut_.pairs * kBlock / 4);
    parity_ ^= 1;
    drip_.flush();
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const Finish<Plain> finish{accumulators(strip, pair), staged + pair * kPairRows, cut_.pairs * kPairRows, {}};
      for (int q = 0; q < 2 * Halves; ++q) finish.tile(q);
    }
    drip_.start(staged, cut_.pairs, args_.y, strip * kStripTokens, tile * kRows, output_columns(args_, tile, tile_end));
  }

  OCTALANE_INLINE void drain_all() {
    if (drain_.sums == nullptr) return;
    for (int q = 0; q < 2 * Halves; ++q) drain_.tile(q);
    drain_.sums = nullptr;
  }

  /// The products of group g of the panel; the drain of the one before lies between them.
  OCTALANE_INLINE void group(int64_t group0, int64_t g, int64_t pair, int64_t strip, float* y) {
    const int chunk = cut_.chunk();
    std::byte* record = records_.at(g, pair);
    const std::byte* w = record;
    const int64_t half_bytes = kRows * cut_.group;
    zero<0>();
    zero<1>();
    if constexpr (Halves == 2) zero<2>(), zero<3>();
    const bool draining = drain_.sums != nullptr;
    for (int at = 0; at < cut_.group; at += chunk, w += kRows * chunk) {
      const int64_t column = (group0 + g) * cut_.group + at;
      const std::byte* x = reinterpret_cast<const std::byte*>(args_.x.codes) +
                           tiled_index(strip * kStripTokens, column, args_.x.stride, kStepBytes);
      const bool drains = draining && at == 0;
      if (!leaves_out(Ablation::no_activation_load)) load<4>(x);
      load<6>(w);
      product_s8<0, 4, 6>();
      if (drains) drain_.tile(0);
      load<7>(w + half_bytes);
      product_s8<1, 4, 7>();
      if (drains) drain_.tile(1);
      if constexpr (Halves == 2) {
        if (!leaves_out(Ablation::no_activation_load)) load<5>(x + kStepTile);
        product_s8<2, 5, 6>();
        if (drains) drain_.tile(2);
        product_s8<3, 5, 7>();
        if (drains) drain_.tile(3);
      }
    }
    drip_.step();
    std::byte* sums = sums_ + half_ * kBlock;
    half_ ^= 1;
    save_accumulators<Halves>(sums);
    drain_ = {sums, y, records_.scales(record), tokens_ + g * 2 * kStripTokens, group0 + g == 0};
  }

  const MatmulArgs& args_;
  const GroupCut& cut_;
  std::byte *panel_, *accumulators_, *sums_;
  float *staging_, *tokens_;
  const Records records_;
  Drain drain_;
  Drip drip_;
  int half_ = 0, parity_ = 0;
};

}  // namespace

void s8_group_gemm(const MatmulArgs& args) {
  const int64_t cols = args.w.padded_cols();
  if (args.x.rows == 0 || args.tile_begin == args.tile_end) return;
  if (cols == 0) return clear_outputs(args);
  const GroupCut cut = s8_group_cut(args.x.rows, cols, args.w.spec.scale.group);
  if (args.x.rows <= 16) return GroupRunner<1>(args, cut).run();
  GroupRunner<2>(args, cut).run();
}

}  // namespace octalane::amx
