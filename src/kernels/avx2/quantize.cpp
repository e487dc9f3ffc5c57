// Bit-identical with scalar/quantize.cpp: the same maxima, divisions and roundings, eight columns at a time.
#include "kernels/avx2/simd.h"

namespace octalane::avx2 {
namespace {

constexpr int32_t kInfinity = 0x7F800000;

/// Eight values from column c, zeros past `cols`.
OCTALANE_INLINE __m256 load_columns(const float* x, int64_t c, int64_t cols) {
  if (c + 8 <= cols) return _mm256_loadu_ps(x + c);
  if (c >= cols) return _mm256_setzero_ps();
  return _mm256_maskload_ps(x + c, first_lanes(cols - c));
}

OCTALANE_INLINE int32_t largest_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return _mm_cvtsi128_si32(m);
}

/// The largest magnitude as bits: they order like the values, infinity and NaNs above all finite ones.
OCTALANE_INLINE int32_t largest_magnitude(const float* x, int64_t begin, int64_t end, int64_t cols) {
  __m256i most = _mm256_setzero_si256();
  for (int64_t c = begin; c < end; c += 8) {
    const __m256i bits = _mm256_castps_si256(load_columns(x, c, cols));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
  }
  return largest_lane(most);
}

/// Eight fp32 of -127..127 -> eight codes, nearest-even.
OCTALANE_INLINE __m128i to_codes(__m256 values) {
  const __m256i whole = _mm256_cvtps_epi32(values);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packs_epi16(words, words);
}

OCTALANE_INLINE float quantize_group(const float* x, int64_t begin, int64_t end, int64_t cols, int8_t* codes) {
  const int32_t bits = largest_magnitude(x, begin, end, cols);
  const float amax = __builtin_bit_cast(float, bits);
  const float inverse = 127.0f / amax;
  const bool finite = bits < kInfinity;
  const bool usable = finite && __builtin_bit_cast(int32_t, inverse) < kInfinity;
  const __m256 factor = _mm256_set1_ps(usable ? inverse : 0.0f);
  for (int64_t c = begin; c < end; c += 8) {
    const __m256 values = usable ? _mm256_mul_ps(load_columns(x, c, cols), factor) : _mm256_setzero_ps();
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + c), to_codes(values));
  }
  if (!finite) return __builtin_nanf("");
  return usable ? amax / 127.0f : 0.0f;
}

/// The sum of `group` (a multiple of 16) codes.
OCTALANE_INLINE int32_t sum_codes(const int8_t* codes, int group) {
  __m256i sum = _mm256_setzero_si256();
  for (int c = 0; c < group; c += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + c));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), _mm256_set1_epi16(1)));
  }
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

}  // namespace

void quantize_bf16(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x.row(r);
    float* out = args.f32 + r * args.stride;
    int64_t c = 0;
    for (; c + 8 <= args.stride; c += 8) {
      _mm256_storeu_ps(out + c, round_to_bf16(load_columns(x, c, args.x.cols)));
    }
    const __m256i rest = first_lanes(args.stride - c);
    _mm256_maskstore_ps(out + c, rest, round_to_bf16(load_columns(x, c, args.x.cols)));
  }
}

void quantize_s8(const QuantizeArgs& args) {
  const int64_t scales = args.groups.scales(args.stride), sums = args.groups.sums(args.stride);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    int8_t* codes = args.codes + r * args.stride;
    for (int64_t g = 0; g < scales; ++g) {
      const int64_t begin = g * args.groups.scale_group, next = begin + args.groups.scale_group;
      const int64_t end = next < args.stride ? next : args.stride;
      args.scales[r * scales + g] = quantize_group(args.x.row(r), begin, end, args.x.cols, codes);
    }
    for (int64_t g = 0; g < sums; ++g) {
      args.sums[r * sums + g] = sum_codes(codes + g * args.groups.sum_group, args.groups.sum_group);
    }
  }
}

}  // namespace octalane::avx2
