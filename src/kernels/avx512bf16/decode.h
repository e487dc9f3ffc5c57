// Packed weights -> right operands of the bfloat16 product: [16 column pairs][16 rows][2 columns] for every 32 columns,
// each weight decoded in fp32 as core/code_spec.h states and rounded once, to nearest-even (subnormals to 0).
#pragma once

#include "kernels/avx2/codebook.h"
#include "kernels/vnni/unpack.h"

namespace octalane::avx512bf16 {
namespace {

using namespace vnni;

/// Bytes ahead of the one in use that packed weights are fetched to L1.
inline constexpr int kPrefetchAhead = 5120;

/// visit(block, record, its 32-column block in the record, block index along K) for blocks [begin, end) of a tile.
template <class Visit>
OCTALANE_INLINE void for_each_block(const PackedView& w, int64_t tile, int64_t begin, int64_t end, const Visit& visit) {
  const int64_t per_record = w.record.cols / kBlockCols;
  int64_t r = begin / per_record, in_record = begin % per_record;
  for (int64_t b = begin; b < end; ++b) {
    const std::byte* record = w.at(tile, r);
    const std::byte* block = record + in_record * w.record.block_bytes;
    for (int line = 0; line < w.record.block_bytes + 64; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(block) + kPrefetchAhead + line, _MM_HINT_T0);
    }
    visit(block, record, static_cast<int>(in_record), b);
    if (++in_record == per_record) in_record = 0, ++r;
  }
}

/// Two columns of fp32 weights -> one row of a right operand.
OCTALANE_INLINE __m512i pair_of(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh halves = _mm512_cvtne2ps_pbh(odd, even);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<const __m512i&>(halves));
}

/// Weights of codes. Levels of up to 5 bits are looked up in registers, wider ones converted.
template <int Bits, bool E4m3 = false>
class CodeDecoder {
 public:
  OCTALANE_INLINE explicit CodeDecoder(const PackedView& w) : w_(w) {
    const CodeSpec& code = w.spec.code;
    if constexpr (Bits <= 5) {
      alignas(64) float levels[32] = {};
      for (int c = 0; c < 1 << Bits; ++c) {
        levels[c] = static_cast<float>(code.map == CodeMap::table ? code.table[c] : c - code.zero);
      }
      low_ = _mm512_load_ps(levels);
      high_ = _mm512_load_ps(levels + 16);
    } else {
      zero_ = _mm512_set1_ps(static_cast<float>(kMiddle - code.zero));
    }
    // A fused multiply-add rounds as the definition does where there is no bias, or where the product is exact anyway:
    // significant bits of scale (and sub-scale) and level.
    const ScaleSpec& s = w.spec.scale;
    const int scale_bits = s.type == ScaleType::f32 ? 24 : s.type == ScaleType::f16 ? 11 : 8;
    const int level_bits = code.map == CodeMap::table ? 7 : E4m3 ? 4 : Bits;
    fused_ = !s.has_bias || scale_bits + (s.nested() ? 7 : 0) + level_bits <= 24;
  }

  /// Blocks [begin, end) of 32 columns of a tile; block i goes to out + i * stride.
  OCTALANE_INLINE void operator()(int64_t tile, int64_t begin, int64_t end, std::byte* out, int64_t stride) const {
    if (fused_) {
      decode<true>(tile, begin, end, out, stride);
    } else {
      decode<false>(tile, begin, end, out, stride);
    }
  }

 private:
  template <bool Fused>
  OCTALANE_INLINE void decode(int64_t tile, int64_t begin, int64_t end, std::byte* out, int64_t stride) const {
    const int group = w_.spec.scale.group;
    for_each_block(w_, tile, begin, end,
                   [&](const std::byte* block, const std::byte* record, int in_record, int64_t b)
                       OCTALANE_INLINE_LAMBDA {
                         std::byte* to = out + (b - begin) * stride;
                         const int column = in_record * kBlockCols;
                         GroupScales scales = group_scales(w_, record, column / group);
                         unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
                           if constexpr (q.value == 4) {
                             if (group == 16) scales = group_scales(w_, record, column / 16 + 1);
                           }
                           quad<Fused, q.value>(block, scales, to + q.value * 128);
                         });
                       });
  }

  template <bool Fused, int Quad>
  OCTALANE_INLINE void quad(const std::byte* block, const GroupScales& scales, std::byte* out) const {
    __m512i codes = unpack_quad<Bits, Quad>(block);
    [[maybe_unused]] __m512 floats[4];
    if constexpr (E4m3) e4m3_to_f32(codes, floats);
    if constexpr (Bits > 5 && !E4m3) codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(kMiddle)));
    __m512 weights[4];
    unroll<4>([&](auto j) OCTALANE_INLINE_LAMBDA {
      __m512 level;
      if constexpr (E4m3) {
        level = _mm512_mul_ps(floats[j.value], _mm512_set1_ps(0x1p8f));
      } else {
        level = level_of<j.value>(codes);
      }
      weights[j.value] = Fused ? _mm512_fmadd_ps(scales.scale, level, scales.bias)
                               : _mm512_add_ps(_mm512_mul_ps(scales.scale, level), scales.bias);
    });
    _mm512_store_si512(out, pair_of(weights[0], weights[1]));
    _mm512_store_si512(out + 64, pair_of(weights[2], weights[3]));
  }

  template <int J>
  OCTALANE_INLINE __m512 level_of(__m512i codes) const {
    if constexpr (Bits <= 4) return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 8 * J), low_);
    if constexpr (Bits == 5) return _mm512_permutex2var_ps(low_, _mm512_srli_epi32(codes, 8 * J), high_);
    const __m512i code = _mm512_srai_epi32(_mm512_slli_epi32(codes, 24 - 8 * J), 24);
    return _mm512_add_ps(_mm512_cvtepi32_ps(code), zero_);  // a whole number: exact
  }

  static constexpr int kMiddle = 128;  // subtracted from unsigned bytes, they become signed ones

  const PackedView& w_;
  __m512 low_, high_, zero_;
  bool fused_;
};

/// Weights of floats.
template <CodeMap Map>
class FloatDecoder {
 public:
  OCTALANE_INLINE explicit FloatDecoder(const PackedView& w) : w_(w) {}

  OCTALANE_INLINE void operator()(int64_t tile, int64_t begin, int64_t end, std::byte* out, int64_t stride) const {
    for_each_block(w_, tile, begin, end,
                   [&](const std::byte* block, const std::byte*, int, int64_t b) OCTALANE_INLINE_LAMBDA {
                     for (int p = 0; p < 16; ++p)
                       _mm512_store_si512(out + (b - begin) * stride + p * 64, pair(block, p));
                   });
  }

 private:
  OCTALANE_INLINE static __m512i pair(const std::byte* block, int p) {
    constexpr int width = Map == CodeMap::f32 ? 4 : 2;
    const std::byte* even = block + 2 * p * kRows * width;
    const std::byte* odd = even + kRows * width;
    if constexpr (Map == CodeMap::f32) return pair_of(_mm512_loadu_ps(even), _mm512_loadu_ps(odd));
    if constexpr (Map == CodeMap::f16) return pair_of(halves_to_f32(even), halves_to_f32(odd));
    const __m512i low = _mm512_cvtepu16_epi32(load_half(even)), high = _mm512_cvtepu16_epi32(load_half(odd));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }

  const PackedView& w_;
};

/// Codebook weights, likewise.
template <int Books, int Vector>
class CodebookDecoder {
 public:
  OCTALANE_INLINE explicit CodebookDecoder(const PackedView& w) : w_(w), columns_(w) {}

  OCTALANE_INLINE void operator()(int64_t tile, int64_t begin, int64_t end, std::byte* out, int64_t stride) const {
    for_each_block(w_, tile, begin, end,
                   [&](const std::byte*, const std::byte* record, int in_record, int64_t b) OCTALANE_INLINE_LAMBDA {
                     std::byte* const to = out + (b - begin) * stride;
                     __m512 even;
                     columns_.block(record, in_record,
                                    [&](int column, const avx2::Pair& weights) OCTALANE_INLINE_LAMBDA {
                                      const int p = column % kBlockCols / 2;
                                      if (column % 2 == 0) {
                                        even = join(weights);
                                      } else {
                                        _mm512_store_si512(to + p * 64, pair_of(even, join(weights)));
                                      }
                                    });
                   });
  }

 private:
  OCTALANE_INLINE static __m512 join(const avx2::Pair& rows) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(rows.v[0]), rows.v[1], 1);
  }

  const PackedView& w_;
  avx2::CodebookDecoder<Books, Vector> columns_;
};

/// body(decoder) with the decoder of these weights.
template <class Body>
OCTALANE_INLINE void with_decoder(const PackedView& w, const Body& body) {
  switch (w.spec.code.map) {
    case CodeMap::f16: return body(FloatDecoder<CodeMap::f16>(w));
    case CodeMap::bf16: return body(FloatDecoder<CodeMap::bf16>(w));
    case CodeMap::f32: return body(FloatDecoder<CodeMap::f32>(w));
    case CodeMap::table: return body(CodeDecoder<4>(w));
    case CodeMap::e4m3: return body(CodeDecoder<8, true>(w));
    case CodeMap::codebook:
      return tiles::with_codebooks(w.spec.code, [&](auto books, auto vector) OCTALANE_INLINE_LAMBDA {
        body(CodebookDecoder<books.value, vector.value>(w));
      });
    case CodeMap::offset: break;
  }
  switch (w.spec.code.bits) {
    case 2: return body(CodeDecoder<2>(w));
    case 3: return body(CodeDecoder<3>(w));
    case 4: return body(CodeDecoder<4>(w));
    case 5: return body(CodeDecoder<5>(w));
    case 6: return body(CodeDecoder<6>(w));
    default: return body(CodeDecoder<8>(w));
  }
}

/// A decoder whose type is forgotten, so that what runs around it is compiled once and not for every kind of code:
/// blocks [begin, end) of 32 columns of one tile, block i to out + i * stride.
struct Decoder {
  const void* self;
  void (*fill)(const void* self, int64_t tile, int64_t begin, int64_t end, std::byte* out, int64_t stride);
};

/// multiply(decoder) with the decoder of these weights.
template <class Multiply>
OCTALANE_INLINE void with_any_decoder(const PackedView& w, const Multiply& multiply) {
  with_decoder(w, [&]<class D>(const D& decoder) OCTALANE_INLINE_LAMBDA {
    multiply(Decoder{&decoder, [](const void* self, int64_t tile, int64_t begin, int64_t end, std::byte* out,
                                  int64_t stride) { (*static_cast<const D*>(self))(tile, begin, end, out, stride); }});
  });
}

}  // namespace
}  // namespace octalane::avx512bf16
