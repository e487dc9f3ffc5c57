// Bit-identical with scalar/quantize.cpp: the same maxima, divisions and roundings, sixteen columns at a time.
#include "core/activations_view.h"
#include "kernels/vnni/simd.h"

namespace octalane::vnni {
namespace {

constexpr int32_t kInfinity = 0x7F800000;

/// Sixteen values from column c, zeros past `cols`.
OCTALANE_INLINE __m512 load_columns(const float* x, int64_t c, int64_t cols) {
  if (c + 16 <= cols) return _mm512_loadu_ps(x + c);
  return _mm512_maskz_loadu_ps(first_lanes(cols - c), x + c);
}

/// The largest magnitude as bits: they order like the values, infinity and NaNs above all finite ones.
OCTALANE_INLINE int32_t largest_magnitude(const float* x, int64_t begin, int64_t end, int64_t cols) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t c = begin; c < end; c += 16) {
    const __m512i bits = _mm512_castps_si512(load_columns(x, c, cols));
    most = _mm512_max_epi32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF)));
  }
  return _mm512_reduce_max_epi32(most);
}

/// Where sixteen codes of a row lie, plain or in the order of tiles.
struct PlainRow {
  int8_t* row;
  OCTALANE_INLINE PlainRow(const QuantizeArgs& args, int64_t r) : row(args.codes + r * args.stride) {}
  OCTALANE_INLINE int8_t* at(int64_t c) const { return row + c; }
};
struct TiledRow {
  const QuantizeArgs& args;
  int64_t r;
  OCTALANE_INLINE int8_t* at(int64_t c) const { return args.codes + tiled_index(r, c, args.stride, 64); }
};

template <class Row>
OCTALANE_INLINE float quantize_group(const float* x, int64_t begin, int64_t end, int64_t cols, const Row& row) {
  const int32_t bits = largest_magnitude(x, begin, end, cols);
  const float amax = __builtin_bit_cast(float, bits);
  const float inverse = 127.0f / amax;
  const bool finite = bits < kInfinity;
  const bool usable = finite && __builtin_bit_cast(int32_t, inverse) < kInfinity;
  const __m512 factor = _mm512_set1_ps(usable ? inverse : 0.0f);
  for (int64_t c = begin; c < end; c += 16) {
    const __m512 values = usable ? _mm512_mul_ps(load_columns(x, c, cols), factor) : _mm512_setzero_ps();
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values));  // -127..127: nothing is cut
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row.at(c)), bytes);
  }
  if (!finite) return __builtin_nanf("");
  return usable ? amax / 127.0f : 0.0f;
}

/// The sum of `group` (a multiple of 16) codes from column `begin` on.
template <class Row>
OCTALANE_INLINE int32_t sum_codes(const Row& row, int64_t begin, int group) {
  __m128i sum = _mm_setzero_si128();
  for (int c = 0; c < group; c += 16) sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), load_quarter(row.at(begin + c)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  return _mm_cvtsi128_si32(sum);
}

template <class Row>
OCTALANE_INLINE void quantize(const QuantizeArgs& args) {
  const int64_t scales = args.groups.scales(args.stride), sums = args.groups.sums(args.stride);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const Row row{args, r};
    for (int64_t g = 0; g < scales; ++g) {
      const int64_t begin = g * args.groups.scale_group, next = begin + args.groups.scale_group;
      const int64_t end = next < args.stride ? next : args.stride;
      args.scales[r * scales + g] = quantize_group(args.x.row(r), begin, end, args.x.cols, row);
    }
    for (int64_t g = 0; g < sums; ++g) {
      args.sums[r * sums + g] = sum_codes(row, g * args.groups.sum_group, args.groups.sum_group);
    }
  }
}

}  // namespace

void quantize_bf16(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x.row(r);
    float* out = args.f32 + r * args.stride;
    for (int64_t c = 0; c < args.stride; c += 16) {
      _mm512_mask_storeu_ps(out + c, first_lanes(args.stride - c), round_to_bf16(load_columns(x, c, args.x.cols)));
    }
  }
}

void quantize_bf16_tiles(const QuantizeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    for (int64_t c = 0; c < args.stride; c += 16) {
      const __m512i bits = _mm512_castps_si512(round_to_bf16(load_columns(args.x.row(r), c, args.x.cols)));
      auto* to = reinterpret_cast<__m256i*>(args.bf16 + tiled_index(r, c, args.stride, 32));
      _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
    }
  }
}

void quantize_s8(const QuantizeArgs& args) { quantize<PlainRow>(args); }
void quantize_s8_tiles(const QuantizeArgs& args) { quantize<TiledRow>(args); }

}  // namespace octalane::vnni
