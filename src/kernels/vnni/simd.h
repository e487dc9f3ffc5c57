// Loads, partial tiles and rounding of the AVX-512 translation units. All inline and without external linkage.
#pragma once

#include <immintrin.h>

#include "core/ablation.h"
#include "core/inline.h"
#include "core/matrix_view.h"
#include "core/unroll.h"
#include "kernels/vnni/kernels.h"

namespace octalane::vnni {
namespace {

OCTALANE_INLINE __m512i load_bytes(const void* from) { return _mm512_loadu_si512(from); }
OCTALANE_INLINE __m256i load_half(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
OCTALANE_INLINE __m128i load_quarter(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

/// For ablation builds: values that no stage makes, and values that no stage takes.
OCTALANE_INLINE __m512 any_floats() {
  __m512 value = _mm512_set1_ps(1);
  asm("" : "+v"(value));
  return value;
}
OCTALANE_INLINE __m512i any_bytes() { return _mm512_castps_si512(any_floats()); }
OCTALANE_INLINE void keep(__m512 value) { asm volatile("" ::"v"(value)); }
OCTALANE_INLINE void keep(__m512i value) { asm volatile("" ::"v"(value)); }

/// The 32-bit value at `from` in every lane.
OCTALANE_INLINE __m512i broadcast_i32(const void* from) {
  int32_t value;
  __builtin_memcpy(&value, from, sizeof value);
  return _mm512_set1_epi32(value);
}
OCTALANE_INLINE __m512 broadcast_f32(const void* from) {
  float value;
  __builtin_memcpy(&value, from, sizeof value);
  return _mm512_set1_ps(value);
}

/// One activation, or four of int8, for all lanes.
OCTALANE_INLINE __m512 broadcast_token(const void* x) {
  return leaves_out(Ablation::no_activation_load) ? any_floats() : broadcast_f32(x);
}
OCTALANE_INLINE __m512i broadcast_token_quad(const void* x) {
  return leaves_out(Ablation::no_activation_load) ? any_bytes() : broadcast_i32(x);
}

/// A mask of the first n lanes of sixteen; all of them when n > 16, none when n < 0.
OCTALANE_INLINE __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1u);
}

/// The rows of one tile that exist: outputs beyond them are neither read nor written.
class TileRows {
 public:
  OCTALANE_INLINE TileRows() : mask_(0) {}
  OCTALANE_INLINE TileRows(int64_t rows, int64_t tile) : mask_(first_lanes(rows - tile * kRows)) {}
  OCTALANE_INLINE __m512 load(const float* y) const { return _mm512_maskz_loadu_ps(mask_, y); }
  OCTALANE_INLINE void store(float* y, __m512 value) const {
    if (leaves_out(Ablation::no_store)) return keep(value);
    _mm512_mask_storeu_ps(y, mask_, value);
  }

 private:
  __mmask16 mask_;
};

/// fp32 rounded to bfloat16 values, nearest-even, any value; a NaN stays a NaN.
OCTALANE_INLINE __m512 round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(rounded, nan, rounded, _mm512_set1_epi32(0x7FC00000)));
}

}  // namespace
}  // namespace octalane::vnni
