// Activations of the s8 form regrouped into one stream for T tokens, in the order in which kernels need them:
//   for each activation group: for each of its sum groups: T seeds (int32, -fold * sum), T sums (fp32), the codes as
//   [quad of columns][T tokens][4]; then T scales (fp32).
// Every operand of the inner loop is then a broadcast from one pointer plus a constant. Tokens past the last are zeros.
#pragma once

#include "core/activations_view.h"
#include "core/packed_view.h"
#include "kernels/vnni/simd.h"

namespace octalane::vnni {
namespace {

struct TokenStream {
  ActivationGroups groups;

  /// Bytes of `cols` columns (whole activation groups) of T tokens.
  OCTALANE_INLINE int64_t bytes(int tokens, int64_t cols) const {
    return tokens * (cols + cols / groups.sum_group * 8 + cols / groups.scale_group * 4);
  }
};

/// The groups of activations for s8.group, as s8_group_groups() states them.
OCTALANE_INLINE ActivationGroups token_groups(const ScaleSpec& s) {
  return {.scale_group = s.group > kBlockCols ? s.group : kBlockCols, .sum_group = s.group};
}

OCTALANE_INLINE int64_t padded_cols(const WeightSpec& spec, int64_t cols) {
  const int record = record_layout(spec, {.rows = kRows}).cols;
  return (cols + record - 1) / record * record;
}

/// codes[quad][T][4] of T rows of `cols` codes.
template <int T>
OCTALANE_INLINE void interleave_codes(const int8_t* const (&rows)[T], int64_t column, int cols, std::byte* to) {
  for (int c = 0; c < cols; c += 16) {
    std::byte* const at = to + c * T;
    __m128i row[T];
    for (int m = 0; m < T; ++m) row[m] = load_quarter(rows[m] + column + c);
    int m = 0;
    for (; m + 4 <= T; m += 4) {
      const __m128i low01 = _mm_unpacklo_epi32(row[m], row[m + 1]), high01 = _mm_unpackhi_epi32(row[m], row[m + 1]);
      const __m128i low23 = _mm_unpacklo_epi32(row[m + 2], row[m + 3]);
      const __m128i high23 = _mm_unpackhi_epi32(row[m + 2], row[m + 3]);
      const __m128i quads[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                                _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
      for (int q = 0; q < 4; ++q) _mm_storeu_si128(reinterpret_cast<__m128i*>(at + (q * T + m) * 4), quads[q]);
    }
    for (; m < T; ++m) {
      for (int q = 0; q < 4; ++q) {
        __builtin_memcpy(at + (q * T + m) * 4, rows[m] + column + c + 4 * q, 4);
      }
    }
  }
}

/// Tokens [token, token + T) and columns [column, column + cols) of x. `zeros` is a row of at least column + cols zero
/// codes that stands for tokens past the last.
template <int T>
OCTALANE_INLINE void write_tokens(const ActivationsView& x, int64_t token, int64_t column, int64_t cols, int fold,
                                  std::byte* to) {
  const int sum_group = x.groups.sum_group, scale_group = x.groups.scale_group;
  const int count = x.rows - token < T ? static_cast<int>(x.rows - token) : T;
  for (int64_t c = column; c < column + cols; c += scale_group) {
    for (int64_t s = c; s < c + scale_group; s += sum_group) {
      int32_t seeds[T] = {};
      float sums[T] = {};
      const int8_t* rows[T];
      for (int m = 0; m < T; ++m) {
        // A token past the last multiplies the codes of the last one; its seed, sum and scale are zeros.
        const int64_t row = token + (m < count ? m : count - 1);
        rows[m] = x.codes + row * x.stride;
        if (m >= count) continue;
        const int32_t sum = x.sums[(row * x.stride + s) / sum_group];
        seeds[m] = -fold * sum;
        sums[m] = static_cast<float>(sum);
      }
      __builtin_memcpy(to, seeds, sizeof seeds);
      __builtin_memcpy(to + sizeof seeds, sums, sizeof sums);
      to += sizeof seeds + sizeof sums;
      interleave_codes<T>(rows, s, sum_group, to);
      to += T * sum_group;
    }
    float scales[T] = {};
    for (int m = 0; m < count; ++m) scales[m] = x.scales[((token + m) * x.stride + c) / scale_group];
    __builtin_memcpy(to, scales, sizeof scales);
    to += sizeof scales;
  }
}

}  // namespace
}  // namespace octalane::vnni
