// Packed bytes of one record -> code vectors and fp32 scales. See core/packed_view.h for the layout: the sixteen rows
// of a tile times four columns are one vector.
#pragma once

#include "core/packed_view.h"
#include "kernels/vnni/simd.h"

namespace octalane::vnni {
namespace {

inline constexpr int kQuadBytes = kRows * 4;

/// Bits [Field * Width, + Width) of every byte, moved to bit To.
template <int Width, int Field, int To>
OCTALANE_INLINE __m512i field(__m512i bytes) {
  if constexpr (Width == 8) return bytes;
  constexpr int right = Field * Width - To;
  __m512i moved = bytes;
  if constexpr (right > 0) moved = _mm512_srli_epi16(bytes, right);
  if constexpr (right < 0) moved = _mm512_slli_epi16(bytes, -right);
  return _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(((1 << Width) - 1) << To)));
}

/// The codes of column quad `Quad` of a block as bytes [row][4 columns].
template <int Bits, int Quad>
OCTALANE_INLINE __m512i unpack_quad(const std::byte* block) {
  constexpr CodePlanes planes = code_planes(Bits);
  constexpr int low = planes.width[0], high = planes.width[1];
  if (leaves_out(Ablation::no_decode)) {
    if constexpr (high != 0) keep(load_bytes(block + (low + Quad % high) * kQuadBytes));
    return load_bytes(block + Quad % low * kQuadBytes);
  }
  const __m512i codes = field<low, Quad / low, 0>(load_bytes(block + Quad % low * kQuadBytes));
  if constexpr (high == 0) {
    return codes;
  } else {
    const __m512i top = load_bytes(block + (low + Quad % high) * kQuadBytes);
    return _mm512_or_si512(codes, field<high, Quad / high, low>(top));
  }
}

OCTALANE_INLINE __m512i load_16_bytes(const std::byte* from) { return _mm512_cvtepu8_epi32(load_quarter(from)); }
OCTALANE_INLINE __m512 load_16_s8(const std::byte* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_quarter(from)));
}
OCTALANE_INLINE __m512 halves_to_f32(const std::byte* from) { return _mm512_cvtph_ps(load_half(from)); }
OCTALANE_INLINE __m512 bf16_to_f32(const std::byte* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_half(from)), 16));
}

/// 2^(e - 127), e = 0 is the subnormal 2^-127 and 255 is NaN.
OCTALANE_INLINE __m512 e8m0_to_f32(__m512i e) {
  const __m512i normal = _mm512_slli_epi32(e, 23);
  const __m512i small = _mm512_mask_mov_epi32(normal, _mm512_testn_epi32_mask(e, e), _mm512_set1_epi32(0x00400000));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(small, nan, _mm512_set1_epi32(0x7FC00000)));
}

/// 2^(e - 128), e = 0 and 1 are subnormals.
OCTALANE_INLINE __m512 e8m0_half_to_f32(__m512i e) {
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

/// Scales of sixteen rows, from index `at` of a plane.
OCTALANE_INLINE __m512 load_scales(ScaleType type, const std::byte* plane, int at) {
  const std::byte* from = plane + at * bytes_of(type);
  switch (type) {
    case ScaleType::f16: return halves_to_f32(from);
    case ScaleType::bf16: return bf16_to_f32(from);
    case ScaleType::f32: return _mm512_loadu_ps(from);
    case ScaleType::e8m0: return e8m0_to_f32(load_16_bytes(from));
    case ScaleType::e8m0_half: return e8m0_half_to_f32(load_16_bytes(from));
    case ScaleType::none: break;
  }
  return _mm512_setzero_ps();
}

OCTALANE_INLINE __m512 negate(__m512 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

/// The scale and bias that group `group` of a record has in effect: w = scale * level + bias. Bias only when it has
/// one.
struct GroupScales {
  __m512 scale, bias;
};
OCTALANE_INLINE GroupScales group_scales(const PackedView& w, const std::byte* record, int group) {
  const ScaleSpec& s = w.spec.scale;
  const int at = s.nested() ? 0 : group * kRows;
  GroupScales g{load_scales(s.type, record + w.record.scale, at), _mm512_setzero_ps()};
  if (s.has_bias) g.bias = load_scales(s.type, record + w.record.bias, at);
  if (s.nested()) {
    g.scale = _mm512_mul_ps(g.scale, load_16_s8(record + w.record.sub_scale + group * kRows));
    if (s.has_bias) g.bias = negate(_mm512_mul_ps(g.bias, load_16_s8(record + w.record.sub_min + group * kRows)));
  }
  return g;
}

/// The even or the odd bytes, E4M3 codes, as halves of their values / 256: the formats differ in the bias of the
/// exponent alone (7 and 15), and in NaN, which becomes one by hand.
template <bool Odd>
OCTALANE_INLINE __m512i e4m3_to_halves(__m512i codes) {
  const __m512i magnitude_bits = _mm512_set1_epi16(0x3F80), sign_bit = _mm512_set1_epi16(INT16_MIN);
  const __m512i moved = Odd ? _mm512_srli_epi16(codes, 1) : _mm512_slli_epi16(codes, 7);
  const __m512i magnitude = _mm512_and_si512(moved, magnitude_bits);
  const __m512i sign = _mm512_and_si512(Odd ? codes : _mm512_slli_epi16(codes, 8), sign_bit);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, magnitude_bits);
  return _mm512_mask_mov_epi16(_mm512_or_si512(magnitude, sign), nan, _mm512_set1_epi16(0x7E00));
}

/// E4M3 codes [16 rows][4 columns] -> their values / 256, one vector per column. Exact.
OCTALANE_INLINE void e4m3_to_f32(__m512i codes, __m512 (&columns)[4]) {
  const __m512i two_columns = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26,
                                               24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i halves[2] = {e4m3_to_halves<false>(codes), e4m3_to_halves<true>(codes)};
  unroll<2>([&](auto odd) OCTALANE_INLINE_LAMBDA {
    const __m512i by_column = _mm512_permutexvar_epi16(two_columns, halves[odd.value]);
    columns[odd.value] = _mm512_cvtph_ps(_mm512_castsi512_si256(by_column));
    columns[odd.value + 2] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(by_column, 1));
  });
}

/// The sixteen levels of a table code plus 128 as bytes, for each 128-bit lane of a byte shuffle.
OCTALANE_INLINE __m512i level_table(const CodeSpec& code) {
  const __m128i levels = load_quarter(&code.table);
  return _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8(-128)));
}

}  // namespace
}  // namespace octalane::vnni
