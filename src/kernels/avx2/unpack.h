// Packed bytes of one record -> code vectors and fp32 scales. See core/packed_view.h for the layout.
#pragma once

#include "core/packed_view.h"
#include "kernels/avx2/simd.h"

namespace octalane::avx2 {
namespace {

inline constexpr int kQuadBytes = kRows * 4;

/// Bits [Field * Width, + Width) of every byte, moved to bit To.
template <int Width, int Field, int To>
OCTALANE_INLINE __m256i field(__m256i bytes) {
  if constexpr (Width == 8) return bytes;
  constexpr int right = Field * Width - To;
  __m256i moved = bytes;
  if constexpr (right > 0) moved = _mm256_srli_epi16(bytes, right);
  if constexpr (right < 0) moved = _mm256_slli_epi16(bytes, -right);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(((1 << Width) - 1) << To)));
}

/// The codes of column quad `Quad` of a block as bytes [row][4 columns]: rows 0-7 (half 0) or 8-15 (half 1).
template <int Bits, int Quad>
OCTALANE_INLINE __m256i unpack_quad(const std::byte* block, int half) {
  constexpr CodePlanes planes = code_planes(Bits);
  constexpr int low = planes.width[0], high = planes.width[1];
  const std::byte* at = block + half * (kQuadBytes / 2);
  if (leaves_out(Ablation::no_decode)) {
    if constexpr (high != 0) keep(load_bytes(at + (low + Quad % high) * kQuadBytes));
    return load_bytes(at + Quad % low * kQuadBytes);
  }
  const __m256i codes = field<low, Quad / low, 0>(load_bytes(at + Quad % low * kQuadBytes));
  if constexpr (high == 0) {
    return codes;
  } else {
    const __m256i top = load_bytes(at + (low + Quad % high) * kQuadBytes);
    return _mm256_or_si256(codes, field<high, Quad / high, low>(top));
  }
}

OCTALANE_INLINE __m256 halves_to_f32(const std::byte* from) { return _mm256_cvtph_ps(load_half(from)); }
OCTALANE_INLINE __m256 bf16_to_f32(const std::byte* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(from)), 16));
}
OCTALANE_INLINE __m256i load_8_bytes(const std::byte* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
OCTALANE_INLINE __m256 load_8_s8(const std::byte* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

/// 2^(e - 127), e = 0 is the subnormal 2^-127 and 255 is NaN.
OCTALANE_INLINE __m256 e8m0_to_f32(__m256i e) {
  const __m256i normal = _mm256_slli_epi32(e, 23);
  const __m256i small =
      _mm256_blendv_epi8(normal, _mm256_set1_epi32(0x00400000), _mm256_cmpeq_epi32(e, _mm256_setzero_si256()));
  return _mm256_castsi256_ps(_mm256_or_si256(
      small, _mm256_and_si256(_mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)), _mm256_set1_epi32(0x7FC00000))));
}

/// 2^(e - 128), e = 0 and 1 are subnormals.
OCTALANE_INLINE __m256 e8m0_half_to_f32(__m256i e) {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/// Scales of sixteen rows, from index `at` of a plane.
OCTALANE_INLINE Pair load_scales(ScaleType type, const std::byte* plane, int at) {
  const std::byte* from = plane + at * bytes_of(type);
  switch (type) {
    case ScaleType::f16: return {{halves_to_f32(from), halves_to_f32(from + 16)}};
    case ScaleType::bf16: return {{bf16_to_f32(from), bf16_to_f32(from + 16)}};
    case ScaleType::f32: {
      const auto* f32 = reinterpret_cast<const float*>(from);
      return {{_mm256_loadu_ps(f32), _mm256_loadu_ps(f32 + 8)}};
    }
    case ScaleType::e8m0: return {{e8m0_to_f32(load_8_bytes(from)), e8m0_to_f32(load_8_bytes(from + 8))}};
    case ScaleType::e8m0_half:
      return {{e8m0_half_to_f32(load_8_bytes(from)), e8m0_half_to_f32(load_8_bytes(from + 8))}};
    case ScaleType::none: break;
  }
  return {{_mm256_setzero_ps(), _mm256_setzero_ps()}};
}

OCTALANE_INLINE Pair times(const Pair& a, const Pair& b) {
  return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}

OCTALANE_INLINE Pair negate(const Pair& a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {{_mm256_xor_ps(a.v[0], sign), _mm256_xor_ps(a.v[1], sign)}};
}

OCTALANE_INLINE Pair load_subs(const std::byte* plane, int group) {
  const std::byte* from = plane + group * kRows;
  return {{load_8_s8(from), load_8_s8(from + 8)}};
}

/// The scale and bias that group `group` of a record has in effect: w = scale * level + bias. Bias only when it has
/// one.
struct GroupScales {
  Pair scale, bias;
};
OCTALANE_INLINE GroupScales group_scales(const PackedView& w, const std::byte* record, int group) {
  const ScaleSpec& s = w.spec.scale;
  const int at = s.nested() ? 0 : group * kRows;
  GroupScales g;
  g.scale = load_scales(s.type, record + w.record.scale, at);
  if (s.has_bias) g.bias = load_scales(s.type, record + w.record.bias, at);
  if (s.nested()) {
    g.scale = times(g.scale, load_subs(record + w.record.sub_scale, group));
    if (s.has_bias) g.bias = negate(times(g.bias, load_subs(record + w.record.sub_min, group)));
  }
  return g;
}

/// The even or the odd bytes, E4M3 codes, as halves of their values / 256: the formats differ in the bias of the
/// exponent alone (7 and 15), and in NaN, which becomes one by hand.
template <bool Odd>
OCTALANE_INLINE __m256i e4m3_to_halves(__m256i codes) {
  const __m256i magnitude_bits = _mm256_set1_epi16(0x3F80), sign_bit = _mm256_set1_epi16(INT16_MIN);
  const __m256i moved = Odd ? _mm256_srli_epi16(codes, 1) : _mm256_slli_epi16(codes, 7);
  const __m256i magnitude = _mm256_and_si256(moved, magnitude_bits);
  const __m256i sign = _mm256_and_si256(Odd ? codes : _mm256_slli_epi16(codes, 8), sign_bit);
  const __m256i nan = _mm256_cmpeq_epi16(magnitude, magnitude_bits);
  return _mm256_or_si256(_mm256_or_si256(magnitude, sign), nan);
}

/// E4M3 codes [8 rows][4 columns] -> their values / 256, one vector per column. Exact.
OCTALANE_INLINE void e4m3_to_f32(__m256i codes, __m256 (&columns)[4]) {
  const __m128i two_columns = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const __m256i halves[2] = {e4m3_to_halves<false>(codes), e4m3_to_halves<true>(codes)};
  unroll<2>([&](auto odd) OCTALANE_INLINE_LAMBDA {
    const __m256i by_lane = _mm256_shuffle_epi8(halves[odd.value], _mm256_broadcastsi128_si256(two_columns));
    const __m256i by_column = _mm256_permute4x64_epi64(by_lane, 0xD8);
    columns[odd.value] = _mm256_cvtph_ps(_mm256_castsi256_si128(by_column));
    columns[odd.value + 2] = _mm256_cvtph_ps(_mm256_extracti128_si256(by_column, 1));
  });
}

/// The sixteen levels of a table code plus `offset` as bytes, for each 128-bit lane of a byte shuffle.
OCTALANE_INLINE __m256i level_table(const CodeSpec& code, int offset) {
  const __m128i levels = load_half(&code.table);
  return _mm256_broadcastsi128_si256(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(offset))));
}

}  // namespace
}  // namespace octalane::avx2
