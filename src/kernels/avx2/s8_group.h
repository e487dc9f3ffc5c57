// The arithmetic of s8.group, shared by gemm and gemv: exact dots of 16 columns, and the drain of a group.
#pragma once

#include "kernels/avx2/unpack.h"

namespace octalane::avx2 {
namespace {

OCTALANE_INLINE __m256i broadcast_quad(const int8_t* codes) {
  if (leaves_out(Ablation::no_activation_load)) return any_bytes();
  int32_t quad;
  __builtin_memcpy(&quad, codes, sizeof quad);
  return _mm256_set1_epi32(quad);
}

OCTALANE_INLINE __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

/// Pins a sum where the source has it. GCC 12 would otherwise make all products of a loop body first and spill them:
/// 108 against 128 Gop/s in s8.group gemm, Xeon, 2026-11.
OCTALANE_INLINE void keep_order(__m256i& sum) { asm("" : "+x"(sum)); }

/// Four quads (16 columns) of 16 rows times M tokens, added to int32 dots. Codes are unsigned and at most Max;
/// |activation| <= 127, so a sum of two products in 16 bits is at most 254 Max: `kQuads` of them cannot overflow.
template <int Max>
struct UnsignedDot {
  static_assert(254 * Max <= 32767);
  static constexpr int kQuads = 4 * 254 * Max <= 32767 ? 4 : 2 * 254 * Max <= 32767 ? 2 : 1;

  template <int M, class Weights>
  OCTALANE_INLINE static void add(const Weights& weights, const int8_t* x, int64_t stride, __m256i (&dots)[M][2]) {
    unroll<4 / kQuads>([&](auto part) OCTALANE_INLINE_LAMBDA {
      __m256i sum[M][2];
      unroll<kQuads>([&](auto i) OCTALANE_INLINE_LAMBDA {
        constexpr int q = part.value * kQuads + i.value;
        const __m256i w[2] = {weights(Constant<q>{}, 0), weights(Constant<q>{}, 1)};
        unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
          const __m256i token = broadcast_quad(x + m.value * stride + 4 * q);
          for (int h = 0; h < 2; ++h) {
            const __m256i product = _mm256_maddubs_epi16(w[h], token);
            sum[m.value][h] = i.value == 0 ? product : _mm256_add_epi16(sum[m.value][h], product);
            keep_order(sum[m.value][h]);
          }
        });
      });
      unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
        for (int h = 0; h < 2; ++h) {
          dots[m.value][h] = _mm256_add_epi32(dots[m.value][h], widen(sum[m.value][h]));
        }
      });
    });
  }
};

/// The same for signed codes of -128..127: |w| times the activation with w's sign, at most 2 * 128 * 127 < 2^15.
struct SignedDot {
  template <int M, class Weights>
  OCTALANE_INLINE static void add(const Weights& weights, const int8_t* x, int64_t stride, __m256i (&dots)[M][2]) {
    unroll<4>([&](auto q) OCTALANE_INLINE_LAMBDA {
      const __m256i w[2] = {weights(q, 0), weights(q, 1)};
      const __m256i magnitude[2] = {_mm256_abs_epi8(w[0]), _mm256_abs_epi8(w[1])};
      unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
        const __m256i token = broadcast_quad(x + m.value * stride + 4 * q.value);
        for (int h = 0; h < 2; ++h) {
          const __m256i product = _mm256_maddubs_epi16(magnitude[h], _mm256_sign_epi8(token, w[h]));
          dots[m.value][h] = _mm256_add_epi32(dots[m.value][h], widen(product));
        }
      });
    });
  }
};

enum class Stage { plain, table, less_128 };

/// Stages codes as bytes that a Dot multiplies: the code, table[code] or code - 128. level = staged - fold().
template <int Bits, Stage How, class DotType>
class CodeStager {
 public:
  using Dot = DotType;
  OCTALANE_INLINE CodeStager(const PackedView& w, int fold) : fold_(fold) {
    if constexpr (How == Stage::table) table_ = level_table(w.spec.code, fold);
  }

  template <int Quad>
  OCTALANE_INLINE __m256i quad(const std::byte* block, int half) const {
    const __m256i codes = unpack_quad<Bits, Quad>(block, half);
    if (leaves_out(Ablation::no_decode)) return codes;
    if constexpr (How == Stage::table) return _mm256_shuffle_epi8(table_, codes);
    if constexpr (How == Stage::less_128) return _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return codes;
  }
  OCTALANE_INLINE int fold() const { return fold_; }

 private:
  int fold_;
  __m256i table_;
};

OCTALANE_INLINE void table_range(const CodeSpec& code, int& least, int& most) {
  int8_t levels[16];
  __builtin_memcpy(levels, &code.table, sizeof levels);
  least = most = levels[0];
  for (const int8_t level : levels) {
    least = level < least ? level : least;
    most = level > most ? level : most;
  }
}

/// body(stager) with the stager of these weights.
template <class Body>
OCTALANE_INLINE void with_stager(const PackedView& w, const Body& body) {
  const CodeSpec& code = w.spec.code;
  if (code.map == CodeMap::table) {
    int least = 0, most = 0;
    table_range(code, least, most);
    if (most - least <= 31) return body(CodeStager<4, Stage::table, UnsignedDot<31>>(w, -least));
    return body(CodeStager<4, Stage::table, SignedDot>(w, 0));
  }
  switch (code.bits) {
    case 2: return body(CodeStager<2, Stage::plain, UnsignedDot<31>>(w, code.zero));
    case 3: return body(CodeStager<3, Stage::plain, UnsignedDot<31>>(w, code.zero));
    case 4: return body(CodeStager<4, Stage::plain, UnsignedDot<31>>(w, code.zero));
    case 5: return body(CodeStager<5, Stage::plain, UnsignedDot<31>>(w, code.zero));
    case 6: return body(CodeStager<6, Stage::plain, UnsignedDot<63>>(w, code.zero));
    default: return body(CodeStager<8, Stage::less_128, SignedDot>(w, code.zero - 128));
  }
}

/// Tokens of the s8 form, from token 0 and one column on.
struct Tokens {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  int64_t stride, scales_stride, sums_stride;
  int scale_group, sum_group;

  OCTALANE_INLINE Tokens(const ActivationsView& x, int64_t column)
      : codes(x.codes + column),
        scales(x.scales + column / x.groups.scale_group),
        sums(x.sums + column / x.groups.sum_group),
        stride(x.stride),
        scales_stride(x.stride / x.groups.scale_group),
        sums_stride(x.stride / x.groups.sum_group),
        scale_group(x.groups.scale_group),
        sum_group(x.groups.sum_group) {}

  OCTALANE_INLINE void next_tokens(int count) {
    codes += count * stride;
    scales += count * scales_stride;
    sums += count * sums_stride;
  }
  OCTALANE_INLINE void next_columns(int count) {
    codes += count;
    scales += count / scale_group;
    sums += count / sum_group;
  }
};

/// The scales of a group times its dots: t = fma(bias, R, t), then t = fma(scale, D, t), for each token.
template <int M>
OCTALANE_INLINE void drain_group(const GroupScales& scales, bool has_bias, int fold, const int32_t* sums,
                                 int64_t sums_stride, const __m256i (&dots)[M][2], Pair (&terms)[M]) {
  unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
    if (leaves_out(Ablation::no_drain)) {
      keep(dots[m.value][0]);
      keep(dots[m.value][1]);
      return;
    }
    const int32_t sum = sums[m.value * sums_stride];
    Pair& t = terms[m.value];
    if (has_bias) {
      const __m256 sum_f32 = _mm256_cvtepi32_ps(_mm256_set1_epi32(sum));
      t.v[0] = _mm256_fmadd_ps(scales.bias.v[0], sum_f32, t.v[0]);
      t.v[1] = _mm256_fmadd_ps(scales.bias.v[1], sum_f32, t.v[1]);
    }
    __m256i dot[2] = {dots[m.value][0], dots[m.value][1]};
    if (fold != 0) {
      const __m256i folded = _mm256_set1_epi32(fold * sum);
      dot[0] = _mm256_sub_epi32(dot[0], folded);
      dot[1] = _mm256_sub_epi32(dot[1], folded);
    }
    t.v[0] = _mm256_fmadd_ps(scales.scale.v[0], _mm256_cvtepi32_ps(dot[0]), t.v[0]);
    t.v[1] = _mm256_fmadd_ps(scales.scale.v[1], _mm256_cvtepi32_ps(dot[1]), t.v[1]);
  });
}

/// Half a block of columns: dots += 16 columns of 16 rows times M tokens.
template <int Half, int M, class Source>
OCTALANE_INLINE void add_half_block(const Source& source, int block, const Tokens& x, __m256i (&dots)[M][2]) {
  const int8_t* codes = x.codes + block * kBlockCols + Half * 16;
  const auto weights = [&](auto q, int rows)
                           OCTALANE_INLINE_LAMBDA { return source.template quad<Half * 4 + q.value>(block, rows); };
  Source::Dot::template add<M>(weights, codes, x.stride, dots);
}

/// y += the product of M tokens with `cols` columns of a tile, which `source` serves: a decoded panel or a packed
/// record. Each output is one chain in ascending K.
template <int M, class Source>
OCTALANE_INLINE void add_product(const Source& source, int cols, const ScaleSpec& spec, const Tokens& x, Pair (&y)[M]) {
  const int blocks_per_group = x.scale_group / kBlockCols;
  const bool split = spec.group < kBlockCols;  // two weight groups to an activation group, else one
  int block = 0, group = 0;
  for (int activation_group = 0; block < cols / kBlockCols; ++activation_group) {
    Pair terms[M] = {};
    __m256i dots[M][2] = {};
    const auto drain = [&]() OCTALANE_INLINE_LAMBDA {
      drain_group<M>(source.scales(group), spec.has_bias, source.fold(), x.sums + group, x.sums_stride, dots, terms);
      ++group;
    };
    for (const int end = block + blocks_per_group; block < end; ++block) {
      add_half_block<0>(source, block, x, dots);
      if (split) {
        drain();
        unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA { dots[m.value][0] = dots[m.value][1] = _mm256_setzero_si256(); });
      }
      add_half_block<1>(source, block, x, dots);
    }
    drain();
    if (leaves_out(Ablation::no_drain)) continue;
    unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
      const __m256 scale = _mm256_broadcast_ss(x.scales + m.value * x.scales_stride + activation_group);
      for (int h = 0; h < 2; ++h) y[m.value].v[h] = _mm256_fmadd_ps(scale, terms[m.value].v[h], y[m.value].v[h]);
    });
  }
}

}  // namespace
}  // namespace octalane::avx2
