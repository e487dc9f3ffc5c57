// Packed bytes of one record -> code bytes and fp32 scales of the 16 rows of a tile. See core/packed_view.h.
#pragma once

#include <immintrin.h>

#include "core/ablation.h"
#include "core/packed_view.h"
#include "kernels/amx/kernels.h"

#define OCTALANE_INLINE_LAMBDA __attribute__((always_inline))

namespace octalane::amx {
namespace {

template <int I>
struct Constant {
  static constexpr int value = I;
};

/// body(Constant<0>), body(Constant<1>), ... body(Constant<N - 1>).
template <int N, class Body>
OCTALANE_INLINE void unroll(const Body& body) {
  if constexpr (N > 0) {
    unroll<N - 1>(body);
    body(Constant<N - 1>{});
  }
}

inline constexpr int kQuadBytes = kRows * 4;

/// For ablation builds: a value that no stage takes.
OCTALANE_INLINE void keep(__m512 value) { asm volatile("" ::"v"(value)); }

OCTALANE_INLINE __m512i load_bytes(const void* from) { return _mm512_loadu_si512(from); }

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
  const __m512i codes = field<low, Quad / low, 0>(load_bytes(block + Quad % low * kQuadBytes));
  if constexpr (high == 0) {
    return codes;
  } else {
    const __m512i top = load_bytes(block + (low + Quad % high) * kQuadBytes);
    return _mm512_or_si512(codes, field<high, Quad / high, low>(top));
  }
}

OCTALANE_INLINE __m128i load_16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
OCTALANE_INLINE __m256i load_32(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
OCTALANE_INLINE __m512 halves_to_f32(const std::byte* from) { return _mm512_cvtph_ps(load_32(from)); }

/// 2^(e - 127), e = 0 is the subnormal 2^-127 and 255 is NaN.
OCTALANE_INLINE __m512 e8m0_to_f32(__m512i e) {
  const __m512i none = _mm512_setzero_si512();
  __m512i bits = _mm512_slli_epi32(e, 23);
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(e, none), _mm512_set1_epi32(0x00400000));
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x7FC00000));
  return _mm512_castsi512_ps(bits);
}

/// 2^(e - 128), e = 0 and 1 are subnormals.
OCTALANE_INLINE __m512 e8m0_half_to_f32(__m512i e) {
  const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(bits, small, _mm512_set1_epi32(0x00200000), e));
}

/// Scales of sixteen rows, from index `at` of a plane.
OCTALANE_INLINE __m512 load_scales(ScaleType type, const std::byte* plane, int at) {
  const std::byte* from = plane + at * bytes_of(type);
  switch (type) {
    case ScaleType::f16: return halves_to_f32(from);
    case ScaleType::bf16: return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(from)), 16));
    case ScaleType::f32: return _mm512_loadu_ps(from);
    case ScaleType::e8m0: return e8m0_to_f32(_mm512_cvtepu8_epi32(load_16(from)));
    case ScaleType::e8m0_half: return e8m0_half_to_f32(_mm512_cvtepu8_epi32(load_16(from)));
    case ScaleType::none: break;
  }
  return _mm512_setzero_ps();
}

/// The scale and bias that a group has in effect: w = scale * level + bias; bias 0 where there is none.
struct GroupScales {
  __m512 scale, bias;
};
OCTALANE_INLINE GroupScales group_scales(const PackedView& w, const std::byte* record, int group) {
  const ScaleSpec& s = w.spec.scale;
  const int at = s.nested() ? 0 : group * kRows;
  GroupScales g{load_scales(s.type, record + w.record.scale, at), _mm512_setzero_ps()};
  if (s.has_bias) g.bias = load_scales(s.type, record + w.record.bias, at);
  if (!s.nested()) return g;
  const auto subs = [&](int plane) OCTALANE_INLINE_LAMBDA {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(record + plane + group * kRows)));
  };
  g.scale = _mm512_mul_ps(g.scale, subs(w.record.sub_scale));
  if (s.has_bias) {
    const __m512i bias = _mm512_castps_si512(_mm512_mul_ps(g.bias, subs(w.record.sub_min)));
    g.bias = _mm512_castsi512_ps(_mm512_xor_si512(bias, _mm512_set1_epi32(INT32_MIN)));
  }
  return g;
}

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

}  // namespace
}  // namespace octalane::amx
