// Loads, partial tiles and rounding of the AVX2 translation units. All inline and without external linkage.
#pragma once

#include <immintrin.h>

#include "core/ablation.h"
#include "core/inline.h"
#include "core/matrix_view.h"
#include "core/unroll.h"
#include "kernels/avx2/kernels.h"

namespace octalane::avx2 {
namespace {

/// Two vectors of eight: the sixteen rows of a tile.
struct Pair {
  __m256 v[2];
};

/// For ablation builds: values that no stage makes, and values that no stage takes.
OCTALANE_INLINE __m256 any_floats() {
  __m256 value = _mm256_set1_ps(1);
  asm("" : "+x"(value));
  return value;
}
OCTALANE_INLINE __m256i any_bytes() { return _mm256_castps_si256(any_floats()); }
OCTALANE_INLINE void keep(__m256 value) { asm volatile("" ::"x"(value)); }
OCTALANE_INLINE void keep(__m256i value) { asm volatile("" ::"x"(value)); }

OCTALANE_INLINE __m256i load_bytes(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
OCTALANE_INLINE __m128i load_half(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

/// One activation for all lanes.
OCTALANE_INLINE __m256 broadcast_token(const float* x) {
  return leaves_out(Ablation::no_activation_load) ? any_floats() : _mm256_broadcast_ss(x);
}

/// A mask of the first n lanes of eight; all of them when n > 8.
OCTALANE_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/// The rows of one tile that exist: outputs beyond them are neither read nor written.
class TileRows {
 public:
  OCTALANE_INLINE TileRows(int64_t rows, int64_t tile) {
    const int64_t left = rows - tile * kRows;
    full_ = left >= kRows;
    mask_[0] = first_lanes(full_ ? 8 : left);
    mask_[1] = first_lanes(full_ ? 8 : left - 8);
  }
  OCTALANE_INLINE Pair load(const float* y) const {
    if (full_) return {{_mm256_loadu_ps(y), _mm256_loadu_ps(y + 8)}};
    return {{_mm256_maskload_ps(y, mask_[0]), _mm256_maskload_ps(y + 8, mask_[1])}};
  }
  OCTALANE_INLINE void store(float* y, const Pair& value) const {
    if (leaves_out(Ablation::no_store)) {
      keep(value.v[0]);
      keep(value.v[1]);
    } else if (full_) {
      _mm256_storeu_ps(y, value.v[0]);
      _mm256_storeu_ps(y + 8, value.v[1]);
    } else {
      _mm256_maskstore_ps(y, mask_[0], value.v[0]);
      _mm256_maskstore_ps(y + 8, mask_[1], value.v[1]);
    }
  }

 private:
  bool full_;
  __m256i mask_[2];
};

/// fp32 rounded to bfloat16 values, nearest-even, any value; a NaN stays a NaN.
OCTALANE_INLINE __m256 round_to_bf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256 rounded = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
  return _mm256_or_ps(rounded, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
}

/// The same for zero and magnitudes of [2^-126, 2^112), in two operations. v - 65536 v, rounded to 24 bits, is a whole
/// number of bfloat16 steps of v off -65536 v; in a tie v is even, so ties go to the even step as well.
OCTALANE_INLINE __m256 round_to_bf16_in_range(__m256 value) {
  const __m256 shifted = _mm256_mul_ps(value, _mm256_set1_ps(-65535.0f));
  return _mm256_fmadd_ps(value, _mm256_set1_ps(65536.0f), shifted);
}

}  // namespace
}  // namespace octalane::avx2
