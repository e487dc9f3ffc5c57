// Activations of the s8 form regrouped into one stream for T tokens, in the order in which kernels need them:
//   for each activation group: for each of its sum groups: T seeds (int32, -fold * sum), T sums (see Sums), the codes
//   as [quad of columns][T tokens][4]; then T scales (fp32).
// Every operand of the inner loop is then a broadcast from one pointer plus a constant. Tokens past the last are zeros.
#pragma once

#include <emmintrin.h>

#include "core/activations_view.h"
#include "core/packed_view.h"
#include "kernels/tiles/vectors.h"

namespace octalane::tiles {
namespace {

/// How sums are handed on: as fp32, or with the first of two sum groups as a pair of int16, one sum below the other
/// (the second group's place, or what lacks a partner, is zero). Sums are at most 128 * 127.
enum class Sums { f32, pairs };

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

/// And for s8.nested, as s8_nested_groups() does.
OCTALANE_INLINE ActivationGroups nested_groups(const ScaleSpec& s) {
  return {.scale_group = s.super, .sum_group = s.group};
}

OCTALANE_INLINE int64_t padded_cols(const WeightSpec& spec, int64_t cols) {
  const int record = record_layout(spec, {.rows = kRows}).cols;
  return (cols + record - 1) / record * record;
}

OCTALANE_INLINE __m128i load_16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

/// T rows of `bytes` bytes, a multiple of 16 -> [unit of 4 bytes][T].
template <int T>
OCTALANE_INLINE void interleave(const std::byte* const (&rows)[T], int64_t bytes, std::byte* to) {
  for (int64_t c = 0; c < bytes; c += 16, to += 16 * T) {
    int m = 0;
    for (; m + 4 <= T; m += 4) {
      const __m128i a = load_16(rows[m] + c), b = load_16(rows[m + 1] + c);
      const __m128i d = load_16(rows[m + 2] + c), e = load_16(rows[m + 3] + c);
      const __m128i low_ab = _mm_unpacklo_epi32(a, b), high_ab = _mm_unpackhi_epi32(a, b);
      const __m128i low_de = _mm_unpacklo_epi32(d, e), high_de = _mm_unpackhi_epi32(d, e);
      const __m128i units[4] = {_mm_unpacklo_epi64(low_ab, low_de), _mm_unpackhi_epi64(low_ab, low_de),
                                _mm_unpacklo_epi64(high_ab, high_de), _mm_unpackhi_epi64(high_ab, high_de)};
      for (int u = 0; u < 4; ++u) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (u * T + m) * 4), units[u]);
    }
    for (; m < T; ++m) {
      for (int u = 0; u < 4; ++u) __builtin_memcpy(to + (u * T + m) * 4, rows[m] + c + 4 * u, 4);
    }
  }
}

/// What stands for the sum of the group that begins at column s, in a row with sums at `sums`.
template <Sums How>
OCTALANE_INLINE int32_t sum_bits(const int32_t* sums, int group, int groups) {
  if constexpr (How == Sums::f32) return __builtin_bit_cast(int32_t, static_cast<float>(sums[group]));
  if (group % 2 != 0) return 0;
  const int32_t second = group + 1 < groups ? sums[group + 1] : 0;
  return static_cast<int32_t>(static_cast<uint32_t>(second) << 16 | (static_cast<uint32_t>(sums[group]) & 0xFFFFu));
}

/// Tokens [token, token + T) and columns [column, column + cols) of x.
template <int T, Sums How>
OCTALANE_INLINE void write_tokens(const ActivationsView& x, int64_t token, int64_t column, int64_t cols, int fold,
                                  std::byte* to) {
  const int sum_group = x.groups.sum_group, scale_group = x.groups.scale_group, groups = scale_group / sum_group;
  const int count = x.rows - token < T ? static_cast<int>(x.rows - token) : T;
  for (int64_t c = column; c < column + cols; c += scale_group) {
    for (int g = 0; g < groups; ++g) {
      int32_t seeds[T] = {}, sums[T] = {};
      const std::byte* rows[T];
      for (int m = 0; m < T; ++m) {
        // A token past the last multiplies the codes of the last one; its seed, sum and scale are zeros.
        const int64_t row = token + (m < count ? m : count - 1);
        rows[m] = reinterpret_cast<const std::byte*>(x.codes + row * x.stride + c + g * sum_group);
        if (m >= count) continue;
        const int32_t* const row_sums = x.sums + row * x.groups.sums(x.stride) + c / sum_group;
        seeds[m] = -fold * row_sums[g];
        sums[m] = sum_bits<How>(row_sums, g, groups);
      }
      __builtin_memcpy(to, seeds, sizeof seeds);
      __builtin_memcpy(to + sizeof seeds, sums, sizeof sums);
      to += sizeof seeds + sizeof sums;
      interleave<T>(rows, sum_group, to);
      to += T * sum_group;
    }
    float scales[T] = {};
    for (int m = 0; m < count; ++m) {
      scales[m] = x.scales[(token + m) * x.groups.scales(x.stride) + c / scale_group];
    }
    __builtin_memcpy(to, scales, sizeof scales);
    to += sizeof scales;
  }
}

}  // namespace
}  // namespace octalane::tiles
