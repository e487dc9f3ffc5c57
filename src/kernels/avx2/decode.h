// Packed records -> bfloat16 weights at fp32 width, column by column. gemm stores them to a panel, gemv multiplies them
// at once; both get the same bits.
#pragma once

#include "kernels/avx2/codebook.h"
#include "kernels/avx2/unpack.h"

namespace octalane::avx2 {
namespace {

/// Byte J of every 32-bit lane.
template <int J>
OCTALANE_INLINE __m256i byte_of_lane(__m256i bytes) {
  if constexpr (J == 0) return _mm256_and_si256(bytes, _mm256_set1_epi32(255));
  if constexpr (J == 3) return _mm256_srli_epi32(bytes, 24);
  constexpr auto at = [](int lane) { return static_cast<int>(0x80808000u) | (4 * lane + J); };
  const __m128i pick = _mm_setr_epi32(at(0), at(1), at(2), at(3));
  return _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(pick));
}

/// bfloat16 of fma(scale, code, offset): serves codes whose scale * level is exact, see CodeDecoder.
struct FusedFinish {
  Pair scale, offset;
  OCTALANE_INLINE __m256 operator()(__m256 code, int half) const {
    return round_to_bf16_in_range(_mm256_fmadd_ps(scale.v[half], code, offset.v[half]));
  }
};

/// bfloat16 of scale * (unit * code - zero) + bias, each operation rounded, any value. The level is exact.
struct GeneralFinish {
  GroupScales group;
  bool has_bias;
  float unit, zero;
  OCTALANE_INLINE __m256 operator()(__m256 code, int half) const {
    const __m256 level = _mm256_fmsub_ps(code, _mm256_set1_ps(unit), _mm256_set1_ps(zero));
    __m256 value = _mm256_mul_ps(group.scale.v[half], level);
    if (has_bias) value = _mm256_add_ps(value, group.bias.v[half]);
    return round_to_bf16(value);
  }
};

/// Decodes code weights. Every column goes to sink(column of the record, weights of the sixteen rows), ascending.
template <int Bits, CodeMap Map>
class CodeDecoder {
 public:
  OCTALANE_INLINE explicit CodeDecoder(const PackedView& w) : w_(w) {
    const ScaleSpec& s = w.spec.scale;
    // Table codes are looked up as level + 128, so that all integers are unsigned bytes.
    zero_ = Map == CodeMap::table ? 128 : Map == CodeMap::e4m3 ? 0 : w.spec.code.zero;
    group_shift_ = __builtin_ctz(static_cast<unsigned>(s.group));  // groups are powers of two
    if constexpr (Map == CodeMap::table) table_ = level_table(w.spec.code, 128);
    const int level_bits = Map == CodeMap::e4m3 ? 4 : Bits;
    fused_ = s.has_bias ? zero_ == 0 && scale_bits(s) + level_bits <= 24 : (zero_ & (zero_ - 1)) == 0;
  }

  template <class Sink>
  OCTALANE_INLINE void record(const std::byte* record, const Sink& sink) const {
    GroupScales scales;
    FusedFinish finish{};
    bool fused = false;
    for (int b = 0; b < w_.record.cols / kBlockCols; ++b) {
      const std::byte* block = record + b * w_.record.block_bytes;
      unroll<2>([&](auto half) OCTALANE_INLINE_LAMBDA {
        const int column = b * kBlockCols + half.value * 16;
        if ((column & (w_.spec.scale.group - 1)) == 0) {
          scales = group_scales(w_, record, column >> group_shift_);
          fused = fused_ && in_range(scales);
          finish = {in_units(scales.scale), w_.spec.scale.has_bias ? scales.bias : zero_offset(scales.scale)};
        }
        if (__builtin_expect(fused, 1)) {
          columns<half.value>(block, finish,
                              [&](int c, const Pair& weights) OCTALANE_INLINE_LAMBDA { sink(column + c, weights); });
        } else {
          Pair decoded[16];
          general<half.value>(block, scales, decoded);
          for (int c = 0; c < 16; ++c) sink(column + c, decoded[c]);
        }
      });
    }
  }

 private:
  /// Levels are this times what columns() gives to `finish`.
  static constexpr float kUnit = Map == CodeMap::e4m3 ? 0x1p8f : 1.0f;

  OCTALANE_INLINE static Pair in_units(const Pair& scale) {
    if constexpr (kUnit == 1.0f) return scale;
    return {{_mm256_mul_ps(scale.v[0], _mm256_set1_ps(kUnit)), _mm256_mul_ps(scale.v[1], _mm256_set1_ps(kUnit))}};
  }

  /// Significant bits of scale (* sub-scale), given that their product is exact; a large number when it may not be.
  OCTALANE_INLINE static int scale_bits(const ScaleSpec& s) {
    const int bits = s.type == ScaleType::f32 ? 24 : s.type == ScaleType::f16 ? 11 : s.type == ScaleType::bf16 ? 8 : 1;
    return bits + (s.nested() ? 7 : 0);
  }

  /// Scales and biases of 0 or of [2^-100, 2^100): then weights are 0 or of [2^-126, 2^112), for they are sums of whole
  /// multiples of 2^-126. Everything else, infinities and NaNs included, takes the general path.
  OCTALANE_INLINE bool in_range(const GroupScales& g) const {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    const __m256i one = _mm256_set1_epi32(1);
    __m256i high = _mm256_setzero_si256();
    __m256i low = _mm256_set1_epi32(-1);  // of magnitude - 1, unsigned: zero is the largest
    const auto take = [&](__m256 value) OCTALANE_INLINE_LAMBDA {
      const __m256i bits = _mm256_and_si256(_mm256_castps_si256(value), magnitude);
      high = _mm256_max_epi32(high, bits);
      low = _mm256_min_epu32(low, _mm256_sub_epi32(bits, one));
    };
    take(g.scale.v[0]);
    take(g.scale.v[1]);
    if (w_.spec.scale.has_bias) {
      take(g.bias.v[0]);
      take(g.bias.v[1]);
    }
    const __m256i lowest = _mm256_set1_epi32(((127 - 100) << 23) - 1);
    const __m256i too_high = _mm256_cmpgt_epi32(high, _mm256_set1_epi32(((127 + 100) << 23) - 1));
    const __m256i low_enough = _mm256_cmpeq_epi32(_mm256_max_epu32(low, lowest), low);
    return _mm256_movemask_epi8(_mm256_andnot_si256(too_high, low_enough)) == -1;
  }

  OCTALANE_INLINE Pair zero_offset(const Pair& scale) const {
    const __m256 zero = _mm256_set1_ps(static_cast<float>(-zero_));
    return {{_mm256_mul_ps(scale.v[0], zero), _mm256_mul_ps(scale.v[1], zero)}};
  }

  template <int Half, class Finish, class Sink>
  OCTALANE_INLINE void columns(const std::byte* block, const Finish& finish, const Sink& sink) const {
    unroll<4>([&](auto q) OCTALANE_INLINE_LAMBDA {
      __m256i low = unpack_quad<Bits, Half * 4 + q.value>(block, 0);
      __m256i high = unpack_quad<Bits, Half * 4 + q.value>(block, 1);
      if constexpr (Map == CodeMap::table) {
        low = _mm256_shuffle_epi8(table_, low);
        high = _mm256_shuffle_epi8(table_, high);
      }
      [[maybe_unused]] __m256 low_floats[4], high_floats[4];
      if constexpr (Map == CodeMap::e4m3) {
        e4m3_to_f32(low, low_floats);
        e4m3_to_f32(high, high_floats);
      }
      unroll<4>([&](auto j) OCTALANE_INLINE_LAMBDA {
        const auto column = [&](__m256i codes, const __m256* floats) OCTALANE_INLINE_LAMBDA {
          return Map == CodeMap::e4m3 ? floats[j.value] : _mm256_cvtepi32_ps(byte_of_lane<j.value>(codes));
        };
        const Pair weights{{finish(column(low, low_floats), 0), finish(column(high, high_floats), 1)}};
        sink(q.value * 4 + j.value, weights);
      });
    });
  }

  /// Out of line: rare, or for scales that few formats have.
  template <int Half>
  [[gnu::noinline]] void general(const std::byte* block, const GroupScales& scales, Pair* out) const {
    const GeneralFinish finish{scales, w_.spec.scale.has_bias, kUnit, static_cast<float>(zero_)};
    columns<Half>(block, finish, [out](int c, const Pair& weights) OCTALANE_INLINE_LAMBDA { out[c] = weights; });
  }

  PackedView w_;
  int zero_;
  int group_shift_;
  bool fused_;
  __m256i table_;
};

/// Decodes float weights, likewise.
template <CodeMap Map>
class FloatDecoder {
 public:
  OCTALANE_INLINE explicit FloatDecoder(const PackedView&) {}

  template <class Sink>
  OCTALANE_INLINE void record(const std::byte* record, const Sink& sink) const {
    constexpr int width = Map == CodeMap::f32 ? 4 : 2;
    for (int c = 0; c < kBlockCols; ++c) {
      const std::byte* from = record + c * kRows * width;
      sink(c, Pair{{element(from), element(from + 8 * width)}});
    }
  }

 private:
  OCTALANE_INLINE static __m256 element(const std::byte* from) {
    if constexpr (Map == CodeMap::bf16) return bf16_to_f32(from);
    if constexpr (Map == CodeMap::f16) return round_to_bf16(halves_to_f32(from));
    return round_to_bf16(_mm256_loadu_ps(reinterpret_cast<const float*>(from)));
  }
};

/// decoder.record, but in a build without decode: there the codes are read and the weights are any.
template <class Decoder, class Sink>
OCTALANE_INLINE void decode_in_registers(const Decoder& decoder, const PackedView& w, const std::byte* record,
                                         const Sink& sink) {
  if constexpr (leaves_out(Ablation::no_decode)) {
    for (int64_t at = 0; at < w.record.cols / kBlockCols * w.record.block_bytes; at += 32)
      keep(load_bytes(record + at));
    for (int c = 0; c < w.record.cols; ++c) sink(c, Pair{{any_floats(), any_floats()}});
  } else {
    decoder.record(record, sink);
  }
}

/// body(decoder) with the decoder of these weights.
template <class Body>
OCTALANE_INLINE void with_decoder(const PackedView& w, const Body& body) {
  switch (w.spec.code.map) {
    case CodeMap::f16: return body(FloatDecoder<CodeMap::f16>(w));
    case CodeMap::bf16: return body(FloatDecoder<CodeMap::bf16>(w));
    case CodeMap::f32: return body(FloatDecoder<CodeMap::f32>(w));
    case CodeMap::table: return body(CodeDecoder<4, CodeMap::table>(w));
    case CodeMap::e4m3: return body(CodeDecoder<8, CodeMap::e4m3>(w));
    case CodeMap::codebook:
      return tiles::with_codebooks(w.spec.code, [&](auto books, auto vector) OCTALANE_INLINE_LAMBDA {
        body(CodebookDecoder<books.value, vector.value>(w));
      });
    case CodeMap::offset: break;
  }
  switch (w.spec.code.bits) {
    case 2: return body(CodeDecoder<2, CodeMap::offset>(w));
    case 3: return body(CodeDecoder<3, CodeMap::offset>(w));
    case 4: return body(CodeDecoder<4, CodeMap::offset>(w));
    case 5: return body(CodeDecoder<5, CodeMap::offset>(w));
    case 6: return body(CodeDecoder<6, CodeMap::offset>(w));
    default: return body(CodeDecoder<8, CodeMap::offset>(w));
  }
}

}  // namespace
}  // namespace octalane::avx2
