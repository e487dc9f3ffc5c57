// Packed records -> bfloat16 weights at fp32 width, column by column. gemm stores them to a panel, gemv multiplies them
// at once; both get the same bits.
#pragma once

#include "kernels/vnni/unpack.h"

namespace octalane::vnni {
namespace {

/// bfloat16 of a value of zero or a magnitude of [2^-126, 2^111). v - 65536 v, rounded to 24 bits, is a whole number of
/// bfloat16 steps of v off -65536 v; in a tie v is even, so ties go to the even step as well. Two ways to the same
/// bits, by multiplications and by additions (65536 v adds 16 to the exponent, which makes a tiny number of a zero, and
/// that cancels): columns take turns, for one way alone keeps two of the vector units of a processor waiting (Zen 5,
/// four units: 1.8 clocks a column against 2.1 and 2.3, 2026-11).
template <int Column>
OCTALANE_INLINE __m512 round_to_bf16_in_range(__m512 value) {
  if constexpr (Column % 2 == 0) {
    const __m512 shifted = _mm512_mul_ps(value, _mm512_set1_ps(-65535.0f));
    return _mm512_fmadd_ps(value, _mm512_set1_ps(65536.0f), shifted);
  } else {
    const __m512i scaled = _mm512_add_epi32(_mm512_castps_si512(value), _mm512_set1_epi32(16 << 23));
    const __m512 times_65536 = _mm512_castsi512_ps(scaled);
    return _mm512_add_ps(times_65536, _mm512_sub_ps(value, times_65536));
  }
}

/// Levels of codes as fp32, sixteen rows of a column at a time. Codes of at most five bits index a table of levels;
/// longer ones are converted, as codes and in units of 2^24.
template <int Bits, bool Table>
class Levels {
 public:
  static constexpr bool kIndexed = Bits <= 5;
  static constexpr float kUnit = kIndexed ? 1.0f : 0x1p24f;
  static constexpr bool kZeroLeft = !kIndexed;           ///< code.zero is still to be taken off
  static constexpr int kSignificant = Table ? 8 : Bits;  ///< bits of a level

  OCTALANE_INLINE explicit Levels(const CodeSpec& code) {
    if constexpr (kIndexed) {
      float levels[32];
      for (int i = 0; i < 32; ++i) {
        const int c = i & ((1 << Bits) - 1);
        levels[i] = static_cast<float>(Table ? level_of_table(code, c) : c - code.zero);
      }
      low_ = _mm512_loadu_ps(levels);
      high_ = _mm512_loadu_ps(levels + 16);
    }
  }

  /// visit(Constant<column of the block>, levels) for the four columns of quad Quad, ascending.
  template <int Quad, class Visit>
  OCTALANE_INLINE void quad(const std::byte* block, const Visit& visit) const {
    const __m512i codes = codes_of<Quad>(block);
    unroll<4>([&](auto j) OCTALANE_INLINE_LAMBDA {
      // Codes at the bottom of their bytes come to the bottom of their lanes by a load from j bytes on: no shift. It
      // ends in the scales behind the codes.
      constexpr bool bottom = (Bits == 2 || Bits == 4) && Quad < Bits && j.value > 0;
      const auto column = Constant<Quad * 4 + j.value>{};
      if constexpr (bottom) {
        visit(column, look_up(load_bytes(block + Quad * kQuadBytes + j.value)));
      } else {
        visit(column, level<Quad, j.value>(codes));
      }
    });
  }

 private:
  OCTALANE_INLINE static int level_of_table(const CodeSpec& code, int c) {
    int8_t levels[16];
    __builtin_memcpy(levels, &code.table, sizeof levels);
    return levels[c];
  }

  /// The vector that holds quad Quad. Indexed: the bits above a code are any; codes of 2 and 4 bits are still to shift.
  template <int Quad>
  OCTALANE_INLINE static __m512i codes_of(const std::byte* block) {
    if constexpr (Bits == 2 || Bits == 4) return load_bytes(block + Quad % Bits * kQuadBytes);
    if constexpr (Bits == 3 || Bits == 5) {
      constexpr int low = Bits - 1, down = Quad / low * low, up = low - Quad;
      __m512i codes = load_bytes(block + Quad % low * kQuadBytes), top = load_bytes(block + low * kQuadBytes);
      if constexpr (down > 0) codes = _mm512_srli_epi16(codes, down);
      if constexpr (up > 0) top = _mm512_slli_epi16(top, up);
      if constexpr (up < 0) top = _mm512_srli_epi16(top, -up);
      constexpr int kFirstSelects = 0xCA;  // first ? second : third, bit by bit
      return _mm512_ternarylogic_epi32(_mm512_set1_epi8(1 << low), top, codes, kFirstSelects);
    }
    if constexpr (!kIndexed) return unpack_quad<Bits, Quad>(block);
  }

  /// By the low bits of the lanes of `index`.
  OCTALANE_INLINE __m512 look_up(__m512i index) const {
    if constexpr (Bits == 5) return _mm512_permutex2var_ps(low_, index, high_);
    return _mm512_permutexvar_ps(index, low_);
  }

  template <int Quad, int J>
  OCTALANE_INLINE __m512 level(__m512i codes) const {
    if constexpr (kIndexed) {
      constexpr int shift = 8 * J + (Bits == 2 || Bits == 4 ? Quad / Bits * Bits : 0);
      return look_up(shift > 0 ? _mm512_srli_epi32(codes, shift) : codes);
    } else {  // the byte at the top of its lane, without its neighbours
      __m512i top = codes;
      if constexpr (J == 0) top = _mm512_slli_epi32(codes, 24);
      if constexpr (J == 3) top = _mm512_and_si512(codes, _mm512_set1_epi32(static_cast<int>(0xFF000000u)));
      if constexpr (J == 1 || J == 2) {
        constexpr auto at = [](int lane) { return static_cast<int>((4 * lane + J) << 24 | 0x00808080); };
        const __m128i pick = _mm_setr_epi32(at(0), at(1), at(2), at(3));
        top = _mm512_shuffle_epi8(codes, _mm512_broadcast_i32x4(pick));
      }
      return _mm512_cvtepu32_ps(top);
    }
  }

  __m512 low_, high_;
};

/// Values of E4M3 codes, likewise, in units of 2^-8.
class E4m3Levels {
 public:
  static constexpr float kUnit = 0x1p-8f;
  static constexpr bool kZeroLeft = false;
  static constexpr int kSignificant = 4;

  OCTALANE_INLINE explicit E4m3Levels(const CodeSpec&) {}

  template <int Quad, class Visit>
  OCTALANE_INLINE void quad(const std::byte* block, const Visit& visit) const {
    __m512 columns[4];
    e4m3_to_f32(unpack_quad<8, Quad>(block), columns);
    unroll<4>([&](auto j) OCTALANE_INLINE_LAMBDA { visit(Constant<Quad * 4 + j.value>{}, columns[j.value]); });
  }
};

/// Decodes code weights of Tiles tiles at once. sink(i, column of the record, weights of the sixteen rows of tile i):
/// columns ascend, tiles take turns every four columns, so that sums of different tiles need not wait for each other.
/// Before each block of 32 columns, before(block) is called.
template <class Levels>
class CodeDecoder {
 public:
  OCTALANE_INLINE explicit CodeDecoder(const PackedView& w) : w_(w), levels_(w.spec.code) {
    const ScaleSpec& s = w.spec.scale;
    zero_ = Levels::kZeroLeft ? w.spec.code.zero : 0;               // of what levels_ gives
    group_shift_ = __builtin_ctz(static_cast<unsigned>(s.group));   // groups are powers of two
    const bool exact = scale_bits(s) + Levels::kSignificant <= 24;  // scale * level
    fused_ = s.has_bias ? zero_ == 0 && exact : (zero_ & (zero_ - 1)) == 0;
  }

  template <int Tiles, class Before, class Sink>
  OCTALANE_INLINE void record(const std::byte* const (&records)[Tiles], const Before& before, const Sink& sink) const {
    GroupScales scales[Tiles];
    Affine affine[Tiles];
    bool fused = false;
    for (int b = 0; b < w_.record.cols / kBlockCols; ++b) {
      before(b);
      const int64_t at = b * int64_t{w_.record.block_bytes};
      unroll<2>([&](auto half) OCTALANE_INLINE_LAMBDA {
        const int column = b * kBlockCols + half.value * 16;
        if ((column & (w_.spec.scale.group - 1)) == 0) {
          fused = fused_;
          unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
            scales[i.value] = group_scales(w_, records[i.value], column >> group_shift_);
            affine[i.value] = affine_of(scales[i.value]);
            fused = fused && in_range(scales[i.value]);
          });
        }
        if (__builtin_expect(fused, 1)) {
          unroll<4>([&](auto q) OCTALANE_INLINE_LAMBDA {
            unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
              const auto finish = [&](auto c, __m512 level) OCTALANE_INLINE_LAMBDA {
                const __m512 value = _mm512_fmadd_ps(affine[i.value].scale, level, affine[i.value].offset);
                sink(i, b * kBlockCols + c.value, round_to_bf16_in_range<c.value>(value));
              };
              levels_.template quad<half.value * 4 + q.value>(records[i.value] + at, finish);
            });
          });
        } else {
          unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
            __m512 decoded[16];
            general<half.value>(records[i.value] + at, scales[i.value], decoded);
            for (int c = 0; c < 16; ++c) sink(i, column + c, decoded[c]);
          });
        }
      });
    }
  }

 private:
  /// w = scale * (what levels_ gives) + offset, before rounding to bfloat16.
  struct Affine {
    __m512 scale, offset;
  };
  OCTALANE_INLINE Affine affine_of(const GroupScales& g) const {
    const __m512 unit = _mm512_set1_ps(1 / Levels::kUnit);
    const __m512 zero = _mm512_set1_ps(static_cast<float>(-zero_));
    return {_mm512_mul_ps(g.scale, unit), w_.spec.scale.has_bias ? g.bias : _mm512_mul_ps(g.scale, zero)};
  }

  /// Significant bits of scale (* sub-scale), given that their product is exact.
  OCTALANE_INLINE static int scale_bits(const ScaleSpec& s) {
    const int bits = s.type == ScaleType::f32 ? 24 : s.type == ScaleType::f16 ? 11 : s.type == ScaleType::bf16 ? 8 : 1;
    return bits + (s.nested() ? 7 : 0);
  }

  /// Scales and biases of 0 or of [2^-100, 2^100): then weights are 0 or of [2^-126, 2^111), for they are sums of whole
  /// multiples of 2^-126. Everything else, infinities and NaNs included, takes the general path.
  OCTALANE_INLINE bool in_range(const GroupScales& g) const {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512i least = _mm512_set1_epi32((127 - 100) << 23), span = _mm512_set1_epi32(200 << 23);
    const auto outside = [&](__m512 value) OCTALANE_INLINE_LAMBDA {
      const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
      const __mmask16 not_zero = _mm512_test_epi32_mask(bits, bits);
      return _mm512_mask_cmpge_epu32_mask(not_zero, _mm512_sub_epi32(bits, least), span);
    };
    const __mmask16 scale = outside(g.scale);
    return w_.spec.scale.has_bias ? (scale | outside(g.bias)) == 0 : scale == 0;
  }

  /// Each operation rounded, any value. Out of line: rare, or for scales that few formats have.
  template <int Half>
  [[gnu::noinline]] void general(const std::byte* block, const GroupScales& scales, __m512* out) const {
    const __m512 unit = _mm512_set1_ps(1 / Levels::kUnit);
    const __m512 zero = _mm512_set1_ps(static_cast<float>(zero_));
    unroll<4>([&](auto q) OCTALANE_INLINE_LAMBDA {
      levels_.template quad<Half * 4 + q.value>(block, [&](auto c, __m512 raw) OCTALANE_INLINE_LAMBDA {
        __m512 value = _mm512_mul_ps(scales.scale, _mm512_sub_ps(_mm512_mul_ps(raw, unit), zero));
        if (w_.spec.scale.has_bias) value = _mm512_add_ps(value, scales.bias);
        out[c.value - Half * 16] = round_to_bf16(value);
      });
    });
  }

  PackedView w_;
  Levels levels_;
  int zero_;
  int group_shift_;
  bool fused_;
};

/// Decodes float weights, likewise.
template <CodeMap Map>
class FloatDecoder {
 public:
  OCTALANE_INLINE explicit FloatDecoder(const PackedView&) {}

  template <int Tiles, class Before, class Sink>
  OCTALANE_INLINE void record(const std::byte* const (&records)[Tiles], const Before& before, const Sink& sink) const {
    before(0);
    constexpr int width = Map == CodeMap::f32 ? 4 : 2;
    for (int c = 0; c < kBlockCols; ++c) {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA { sink(i, c, element(records[i.value] + c * kRows * width)); });
    }
  }

 private:
  OCTALANE_INLINE static __m512 element(const std::byte* from) {
    if constexpr (Map == CodeMap::bf16) return bf16_to_f32(from);
    if constexpr (Map == CodeMap::f16) return round_to_bf16(halves_to_f32(from));
    return round_to_bf16(_mm512_loadu_ps(from));
  }
};

/// decoder.record, but in a build without decode: there the codes are read and the weights are any.
template <class Decoder, int Tiles, class Before, class Sink>
OCTALANE_INLINE void decode_in_registers(const Decoder& decoder, const PackedView& w,
                                         const std::byte* const (&records)[Tiles], const Before& before,
                                         const Sink& sink) {
  if constexpr (!leaves_out(Ablation::no_decode)) return decoder.record(records, before, sink);
  for (int b = 0; b < w.record.cols / kBlockCols; ++b) {
    before(b);
    const int64_t end = (b + 1) * int64_t{w.record.block_bytes};
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      for (int64_t at = end - w.record.block_bytes; at < end; at += 64) keep(load_bytes(records[i.value] + at));
      for (int c = 0; c < kBlockCols; ++c) sink(i, b * kBlockCols + c, any_floats());
    });
  }
}

/// body(decoder) with the decoder of these weights.
template <class Body>
OCTALANE_INLINE void with_decoder(const PackedView& w, const Body& body) {
  switch (w.spec.code.map) {
    case CodeMap::f16: return body(FloatDecoder<CodeMap::f16>(w));
    case CodeMap::bf16: return body(FloatDecoder<CodeMap::bf16>(w));
    case CodeMap::f32: return body(FloatDecoder<CodeMap::f32>(w));
    case CodeMap::table: return body(CodeDecoder<Levels<4, true>>(w));
    case CodeMap::e4m3: return body(CodeDecoder<E4m3Levels>(w));
    case CodeMap::codebook:
    case CodeMap::offset: break;
  }
  switch (w.spec.code.bits) {
    case 2: return body(CodeDecoder<Levels<2, false>>(w));
    case 3: return body(CodeDecoder<Levels<3, false>>(w));
    case 4: return body(CodeDecoder<Levels<4, false>>(w));
    case 5: return body(CodeDecoder<Levels<5, false>>(w));
    case 6: return body(CodeDecoder<Levels<6, false>>(w));
    default: return body(CodeDecoder<Levels<8, false>>(w));
  }
}

}  // namespace
}  // namespace octalane::vnni
