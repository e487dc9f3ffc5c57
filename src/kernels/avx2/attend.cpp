#include "core/attention.h"
#include "kernels/avx2/simd.h"

namespace octalane::avx2 {
namespace {

/// Sixteen floats, the operations that core/attention.h asks for.
struct Sixteen {
  static constexpr int kQueries = 4;  ///< 4 x 2 sums of scores, or of values, in 16 registers

  __m256 v[2];

  template <class Operation>
  OCTALANE_INLINE static Sixteen each(const Operation& operation) {
    return {{operation(0), operation(1)}};
  }
  OCTALANE_INLINE static Sixteen all(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
  OCTALANE_INLINE static Sixteen load(const float* from) {
    return {{_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}};
  }
  OCTALANE_INLINE static Sixteen halves(const uint16_t* from) {
    return each([=](int i) OCTALANE_INLINE_LAMBDA { return _mm256_cvtph_ps(load_half(from + 8 * i)); });
  }
  OCTALANE_INLINE void store(float* to) const {
    _mm256_storeu_ps(to, v[0]);
    _mm256_storeu_ps(to + 8, v[1]);
  }
  OCTALANE_INLINE void store_first(float* to, int64_t n) const {
    if (n >= 16) return store(to);
    _mm256_maskstore_ps(to, first_lanes(n), v[0]);
    if (n > 8) _mm256_maskstore_ps(to + 8, first_lanes(n - 8), v[1]);
  }
  OCTALANE_INLINE static Sixteen fma(Sixteen a, Sixteen b, Sixteen c) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_fmadd_ps(a.v[i], b.v[i], c.v[i]); });
  }
  OCTALANE_INLINE static Sixteen times(Sixteen a, Sixteen b) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_mul_ps(a.v[i], b.v[i]); });
  }
  OCTALANE_INLINE static Sixteen plus(Sixteen a, Sixteen b) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_add_ps(a.v[i], b.v[i]); });
  }
  OCTALANE_INLINE static Sixteen minus(Sixteen a, Sixteen b) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_sub_ps(a.v[i], b.v[i]); });
  }
  OCTALANE_INLINE static Sixteen over(Sixteen a, Sixteen b) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_div_ps(a.v[i], b.v[i]); });
  }
  /// b where one of the two is NaN.
  OCTALANE_INLINE static Sixteen max(Sixteen a, Sixteen b) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_max_ps(a.v[i], b.v[i]); });
  }
  OCTALANE_INLINE static Sixteen nearest(Sixteen a) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return each([&](int i) OCTALANE_INLINE_LAMBDA { return _mm256_round_ps(a.v[i], mode); });
  }
  /// a * 2^n for whole n that keep a normal.
  OCTALANE_INLINE static Sixteen times_power_of_two(Sixteen a, Sixteen n) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA {
      const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v[i]), 23);
      return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v[i]), power));
    });
  }
  /// 0 where x < bound, else a.
  OCTALANE_INLINE static Sixteen zero_where_less(Sixteen a, Sixteen x, float bound) {
    return each([&](int i) OCTALANE_INLINE_LAMBDA {
      return _mm256_andnot_ps(_mm256_cmp_ps(x.v[i], _mm256_set1_ps(bound), _CMP_LT_OQ), a.v[i]);
    });
  }
  /// The first n lanes of a, `rest` in the others.
  OCTALANE_INLINE static Sixteen first(Sixteen a, int64_t n, float rest) {
    if (n >= 16) return a;
    return each([&](int i) OCTALANE_INLINE_LAMBDA {
      const __m256 mask = _mm256_castsi256_ps(first_lanes(n - 8 * i));
      return _mm256_blendv_ps(_mm256_set1_ps(rest), a.v[i], mask);
    });
  }
  OCTALANE_INLINE static float highest(Sixteen a) {
    const __m256 m = _mm256_max_ps(a.v[0], a.v[1]);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  /// Lane i and lane i + 8 first, then i + 4, i + 2, i + 1.
  OCTALANE_INLINE static float sum(Sixteen a) {
    const __m256 m = _mm256_add_ps(a.v[0], a.v[1]);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

}  // namespace

void attend(const AttendArgs& args) { attend_in_vectors<Sixteen>(args); }

}  // namespace octalane::avx2
