// How weights are stored, described and not named: a kernel asks "what code, what scale?", never "what format?".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/inline.h"

namespace octalane {

/// How one stored code becomes a level.
enum class CodeMap : uint8_t {
  offset,    ///< level = code - zero, an integer
  table,     ///< level = table[code], 4-bit codes, integer levels
  e4m3,      ///< level = the value of an 8-bit float of OCP's E4M3 (core/half.h), NaN included
  codebook,  ///< `books` codes of 8 bits for `vector` columns: levels = the fp32 sum of their codewords, books in order
  f16,       ///< the element itself is an IEEE half
  bf16,      ///< the element itself is a bfloat16
  f32,       ///< the element itself is an fp32
};

inline constexpr int kCodewords = 256;

struct CodeSpec {
  CodeMap map = CodeMap::offset;
  uint8_t bits = 8;  ///< stored width: 2 3 4 5 6 8; 16 or 32 for float elements
  int16_t zero = 0;  ///< CodeMap::offset only
  std::array<int8_t, 16> table{};
  uint8_t books = 0;   ///< CodeMap::codebook only: 1 or 2 codebooks of kCodewords codewords each, shared by the matrix
  uint8_t vector = 0;  ///< values of a codeword: 4 or 8

  OCTALANE_INLINE constexpr bool has_integer_levels() const { return map == CodeMap::offset || map == CodeMap::table; }
  /// Elements that are the weights themselves, without a scale.
  OCTALANE_INLINE constexpr bool is_float() const {
    return map == CodeMap::f16 || map == CodeMap::bf16 || map == CodeMap::f32;
  }
  OCTALANE_INLINE constexpr bool is_codebook() const { return map == CodeMap::codebook; }
  /// Values in all codebooks.
  OCTALANE_INLINE constexpr size_t codebook_values() const { return size_t{books} * kCodewords * vector; }
  /// Bytes of the codes of `cols` columns at their stored width. Precondition: !is_float(), cols a multiple of 32.
  OCTALANE_INLINE constexpr int64_t code_bytes(int64_t cols) const {
    return is_codebook() ? cols / vector * books : cols * bits / 8;
  }
  /// The level of a code. Precondition: has_integer_levels() and code < 2^bits.
  constexpr int level(unsigned code) const {
    return map == CodeMap::table ? table[code & 15u] : static_cast<int>(code) - zero;
  }
  friend constexpr bool operator==(const CodeSpec&, const CodeSpec&) = default;
};

/// How a stored scale becomes fp32.
enum class ScaleType : uint8_t { none, f16, bf16, f32, e8m0, e8m0_half };

OCTALANE_INLINE constexpr int bytes_of(ScaleType type) {
  switch (type) {
    case ScaleType::none: return 0;
    case ScaleType::f16:
    case ScaleType::bf16: return 2;
    case ScaleType::f32: return 4;
    case ScaleType::e8m0:
    case ScaleType::e8m0_half: return 1;
  }
  return 0;
}

/// Scales along K; codebooks have flat ones without bias, and the last group of a row may be shorter there. Flat (super
/// == 0), per `group` columns:
///   w = scale * level + bias                      (two fp32 roundings; no addition without bias)
/// Nested (super > 0), integer sub-scales per `group` under one pair per `super` columns:
///   w = (scale * sub_scale) * level - (bias * sub_min)   (each operation rounded to fp32; no subtraction without bias)
struct ScaleSpec {
  ScaleType type = ScaleType::none;
  int16_t group = 0;  ///< 16..128; 0 for float elements
  int16_t super = 0;
  bool has_bias = false;
  bool powers_of_two = false;  ///< every scale is one, though a wider type stores them: E8M0 that keeps its NaN

  /// Scales that can move exactly to one per row, as far as they lie together.
  OCTALANE_INLINE constexpr bool are_powers_of_two() const {
    return powers_of_two || type == ScaleType::e8m0 || type == ScaleType::e8m0_half;
  }
  OCTALANE_INLINE constexpr bool nested() const { return super > 0; }
  friend constexpr bool operator==(const ScaleSpec&, const ScaleSpec&) = default;
};

struct WeightSpec {
  CodeSpec code;
  ScaleSpec scale;
  friend constexpr bool operator==(const WeightSpec&, const WeightSpec&) = default;
};

}  // namespace octalane
