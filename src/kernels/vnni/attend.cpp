#include "core/attention.h"
#include "kernels/vnni/simd.h"

namespace octalane::vnni {
namespace {

/// Sixteen floats, the operations that core/attention.h asks for.
struct Sixteen {
  static constexpr int kQueries = 8;  ///< 8 x 2 sums of values in 32 registers

  __m512 v;

  OCTALANE_INLINE static Sixteen all(float x) { return {_mm512_set1_ps(x)}; }
  OCTALANE_INLINE static Sixteen load(const float* from) { return {_mm512_loadu_ps(from)}; }
  OCTALANE_INLINE static Sixteen halves(const uint16_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  OCTALANE_INLINE void store(float* to) const { _mm512_storeu_ps(to, v); }
  OCTALANE_INLINE void store_first(float* to, int64_t n) const { _mm512_mask_storeu_ps(to, first_lanes(n), v); }
  OCTALANE_INLINE static Sixteen fma(Sixteen a, Sixteen b, Sixteen c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  OCTALANE_INLINE static Sixteen times(Sixteen a, Sixteen b) { return {_mm512_mul_ps(a.v, b.v)}; }
  OCTALANE_INLINE static Sixteen plus(Sixteen a, Sixteen b) { return {_mm512_add_ps(a.v, b.v)}; }
  OCTALANE_INLINE static Sixteen minus(Sixteen a, Sixteen b) { return {_mm512_sub_ps(a.v, b.v)}; }
  OCTALANE_INLINE static Sixteen over(Sixteen a, Sixteen b) { return {_mm512_div_ps(a.v, b.v)}; }
  /// b where one of the two is NaN.
  OCTALANE_INLINE static Sixteen max(Sixteen a, Sixteen b) { return {_mm512_max_ps(a.v, b.v)}; }
  OCTALANE_INLINE static Sixteen nearest(Sixteen a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  /// a * 2^n for whole n that keep a normal.
  OCTALANE_INLINE static Sixteen times_power_of_two(Sixteen a, Sixteen n) {
    const __m512i power = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), power))};
  }
  /// 0 where x < bound, else a.
  OCTALANE_INLINE static Sixteen zero_where_less(Sixteen a, Sixteen x, float bound) {
    return {
        _mm512_maskz_mov_ps(static_cast<__mmask16>(~_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_LT_OQ)), a.v)};
  }
  /// The first n lanes of a, `rest` in the others.
  OCTALANE_INLINE static Sixteen first(Sixteen a, int64_t n, float rest) {
    return {_mm512_mask_mov_ps(_mm512_set1_ps(rest), first_lanes(n), a.v)};
  }
  OCTALANE_INLINE static float highest(Sixteen a) { return _mm512_reduce_max_ps(a.v); }
  /// Lane i and lane i + 8 first, then i + 4, i + 2, i + 1.
  OCTALANE_INLINE static float sum(Sixteen a) {
    const __m256 m = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

}  // namespace

void attend(const AttendArgs& args) { attend_in_vectors<Sixteen>(args); }

}  // namespace octalane::vnni
