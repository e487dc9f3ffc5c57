// Bit-identical with scalar/quantize.cpp: the same maxima, divisions and roundings, sixteen columns at a time.
#include "core/activations_view.h"
#include "kernels/amx/unpack.h"

namespace octalane::amx {
namespace {

constexpr int32_t kInfinity = 0x7F800000;

/// Sixteen values from column c, zeros past `cols`.
OCTALANE_INLINE __m512 load_columns(const float* x, int64_t c, int64_t cols) {
  const int64_t left = cols - c;
  if (left >= 16) return _mm512_loadu_ps(x + c);
  return left > 0 ? _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1u), x + c) : _mm512_setzero_ps();
}

/// fp32 -> bfloat16, nearest-even, subnormals kept, a NaN stays a NaN: the conversion instruction would flush them.
OCTALANE_INLINE __m256i to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(sum, nan, quiet), 16));
}

/// The largest magnitude as bits: they order like the values, infinity and NaNs above all finite ones.
OCTALANE_INLINE int32_t largest_magnitude(const float* x, int64_t begin, int64_t end, int64_t cols) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t c = begin; c < end; c += 16) {
    const __m512i bits = _mm512_castps_si512(load_columns(x, c, cols));
    most = _mm512_max_epi32(most, _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MAX)));
  }
  return _mm512_reduce_max_epi32(most);
}

/// Codes of columns [begin, end) of token r into their places; returns the scale.
OCTALANE_INLINE float quantize_group(const QuantizeArgs& args, int64_t r, int64_t begin, int64_t end) {
  const float* x = args.x.row(r);
  const int32_t bits = largest_magnitude(x, begin, end, args.x.cols);
  const float amax = __builtin_bit_cast(float, bits);
  const float inverse = 127.0f / amax;
  const bool finite = bits < kInfinity;
  const bool usable = finite && __builtin_bit_cast(int32_t, inverse) < kInfinity;
  const __m512 factor = _mm512_set1_ps(usable ? inverse : 0.0f);
  for (int64_t c = begin; c < end; c += 16) {
    const __m512 values = usable ? _mm512_mul_ps(load_columns(x, c, args.x.cols), factor) : _mm512_setzero_ps();
    const __m128i codes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(args.codes + tiled_index(r, c, args.stride, 64)), codes);
  }
  if (!finite) return __builtin_nanf("");
  return usable ? amax / 127.0f : 0.0f;
}

/// The sum of the codes of columns [begin, end), multiples of 16.
OCTALANE_INLINE int32_t sum_codes(const QuantizeArgs& args, int64_t r, int64_t begin, int64_t end) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t c = begin; c < end; c += 16) {
    const int8_t* codes = args.codes + tiled_index(r, c, args.stride, 64);
    sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
  }
  return _mm512_reduce_add_epi32(sum);
}

}  // namespace

void quantize_bf16_tiles(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    for (int64_t c = 0; c < args.stride; c += 16) {
      uint16_t* to = args.bf16 + tiled_index(r, c, args.stride, 32);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), to_bf16(load_columns(args.x.row(r), c, args.x.cols)));
    }
  }
}

void quantize_s8_tiles(const QuantizeArgs& args) {
  const int64_t scales = args.groups.scales(args.stride), sums = args.groups.sums(args.stride);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    for (int64_t g = 0; g < scales; ++g) {
      const int64_t begin = g * args.groups.scale_group, next = begin + args.groups.scale_group;
      args.scales[r * scales + g] = quantize_group(args, r, begin, next < args.stride ? next : args.stride);
    }
    for (int64_t g = 0; g < sums; ++g) {
      const int64_t begin = g * args.groups.sum_group;
      args.sums[r * sums + g] = sum_codes(args, r, begin, begin + args.groups.sum_group);
    }
  }
}

}  // namespace octalane::amx
