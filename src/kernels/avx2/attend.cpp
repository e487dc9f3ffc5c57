#include "kernels/avx2/simd.h"

namespace octalane::avx2 {
namespace {

OCTALANE_INLINE float sum_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

OCTALANE_INLINE __m256 load_halves(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

/// The first n (0..7) of eight halves, zeros after them.
OCTALANE_INLINE __m256 load_halves(const uint16_t* from, int64_t n) {
  alignas(16) uint16_t some[8] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = from[i];
  return load_halves(some);
}

/// exp(x) for x <= 0 within 2 ulp; below -87.3 it is 0, NaN stays NaN. x = n ln 2 + r, |r| <= ln 2 / 2, and a Taylor
/// polynomial of degree 7 (its remainder is below 2^-26).
OCTALANE_INLINE __m256 exp_of_negative(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.3f);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(_mm256_max_ps(lowest, x), _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts; n times the first has at most 16 + 7 significant bits and is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), _mm256_max_ps(lowest, x));
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
  constexpr float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  for (const float c : coefficients) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
  const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256 value = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
  // max(lowest, x) hands on a NaN x, and a NaN is not below `lowest`.
  return _mm256_andnot_ps(_mm256_cmp_ps(x, lowest, _CMP_LT_OQ), value);
}

OCTALANE_INLINE float dot(const float* q, const uint16_t* k, int64_t n) {
  __m256 sum = _mm256_setzero_ps();
  int64_t d = 0;
  for (; d + 8 <= n; d += 8) sum = _mm256_fmadd_ps(_mm256_loadu_ps(q + d), load_halves(k + d), sum);
  if (d < n) {
    sum = _mm256_fmadd_ps(_mm256_maskload_ps(q + d, first_lanes(n - d)), load_halves(k + d, n - d), sum);
  }
  return sum_lanes(sum);
}

/// scores = scale * q K^T; returns the highest.
float score(const AttendArgs& args) {
  float highest = -__builtin_inff();
  for (int64_t p = 0; p < args.positions; ++p) {
    const float s = args.scale * dot(args.q, args.k + p * args.kv_stride, args.head_dim);
    args.scores[p] = s;
    highest = s > highest ? s : highest;
  }
  return highest;
}

/// scores = exp(scores - highest); returns their sum.
float exponentiate(const AttendArgs& args, float highest) {
  const __m256 top = _mm256_set1_ps(highest);
  __m256 total = _mm256_setzero_ps();
  int64_t p = 0;
  for (; p + 8 <= args.positions; p += 8) {
    const __m256 e = exp_of_negative(_mm256_sub_ps(_mm256_loadu_ps(args.scores + p), top));
    _mm256_storeu_ps(args.scores + p, e);
    total = _mm256_add_ps(total, e);
  }
  if (p < args.positions) {
    const __m256i rest = first_lanes(args.positions - p);
    const __m256 e = exp_of_negative(_mm256_sub_ps(_mm256_maskload_ps(args.scores + p, rest), top));
    _mm256_maskstore_ps(args.scores + p, rest, e);
    total = _mm256_add_ps(total, _mm256_and_ps(e, _mm256_castsi256_ps(rest)));
  }
  return sum_lanes(total);
}

/// out[8 Vectors] = (scores V) / total for as many columns, which lie in registers over all positions.
template <int Vectors>
OCTALANE_INLINE void weigh(const AttendArgs& args, int64_t d, float total) {
  __m256 sum[Vectors] = {};
  const uint16_t* v = args.v + d;
  for (int64_t p = 0; p < args.positions; ++p, v += args.kv_stride) {
    const __m256 weight = _mm256_broadcast_ss(args.scores + p);
    for (int i = 0; i < Vectors; ++i) sum[i] = _mm256_fmadd_ps(weight, load_halves(v + 8 * i), sum[i]);
  }
  for (int i = 0; i < Vectors; ++i) {
    _mm256_storeu_ps(args.out + d + 8 * i, _mm256_div_ps(sum[i], _mm256_set1_ps(total)));
  }
}

void weigh_rest(const AttendArgs& args, int64_t d, float total) {
  const int64_t n = args.head_dim - d;
  __m256 sum = _mm256_setzero_ps();
  for (int64_t p = 0; p < args.positions; ++p) {
    const __m256 weight = _mm256_broadcast_ss(args.scores + p);
    sum = _mm256_fmadd_ps(weight, load_halves(args.v + p * args.kv_stride + d, n), sum);
  }
  _mm256_maskstore_ps(args.out + d, first_lanes(n), _mm256_div_ps(sum, _mm256_set1_ps(total)));
}

}  // namespace

void attend(const AttendArgs& args) {
  // Without positions there is nothing to weigh: the sums are zeros, and so is the output.
  const float total = args.positions > 0 ? exponentiate(args, score(args)) : 1.0f;
  int64_t d = 0;
  for (; d + 64 <= args.head_dim; d += 64) weigh<8>(args, d, total);
  for (; d + 16 <= args.head_dim; d += 16) weigh<2>(args, d, total);
  if (d + 8 <= args.head_dim) {
    weigh<1>(args, d, total);
    d += 8;
  }
  if (d < args.head_dim) weigh_rest(args, d, total);
}

}  // namespace octalane::avx2
