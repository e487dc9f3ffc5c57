// Weights as they lie in a device's memory: planes cut into records of 64 rows by 64 columns, codes at 4 or 8 bits in
// the order in which the lanes of a warp hold the left operand of a matrix instruction. Known to host and device code.
//
// A record: codes, then scale words.
// Codes belong to 128 threads t = 32 * (row / 16) + 4 * (row % 8) + c, c = 0..3; a thread holds rows r and r + 8
// (h = 0, 1) and, of each 32 columns j = 0, 1, the quads 4c..4c+3 and 16+4c..16+4c+3 (q = 0, 1).
//   4 bits: [t][j][h] words of eight codes, 16 bytes a thread. Integers: code i = 4q + e of the eight in nibble
//           2e + q, so that one mask takes a quad of bytes; tables: in nibble i, as byte permutes want them. With
//           exponent and shift words, the sign of an index (bit 3) lies in bit 8e + 7 - 4q instead.
//   8 bits: [j][t][h][q] words of four codes.
// Scale words: [64 rows][64 / group], of 2 or 4 bytes; groups of more than 64 columns are repeated.
// Records of 64 rows follow each other along K (a multiple of 128, zeros past the end), then along N (a multiple of
// 128 rows, zeros likewise).
#pragma once

#include <cstdint>

namespace octalane::cuda {

inline constexpr int kRecordRows = 64, kRecordCols = 64;
inline constexpr int kPanelCols = 128;  ///< K is padded to a multiple
inline constexpr int kPanelRows = 128;  ///< N likewise
inline constexpr int kSuperCols = 256;  ///< columns of a super-group and of a block of s8.block

/// What a code is: an integer of 4 bits, an index into 16 levels, an integer of 8 bits, an 8-bit float of E4M3.
enum class Code { nibble, table, byte, e4m3 };

constexpr int code_bits(Code code) { return code == Code::byte || code == Code::e4m3 ? 8 : 4; }

/// What a scale word says; `single` words are one 16-bit float, `pair` words a scale and a bias.
enum class ScaleWords : int {
  staged,  ///< restage.h's S, int16, and 2^15 + 128 + the sum S * level + B of the pivot code, uint16
  pair_f16,
  pair_bf16,
  single_f16,
  single_bf16,
  nested,    ///< sub-scale and sub-minimum, int8; scale and bias as two f16 for each 256 columns lie apart
  exponent,  ///< f8.row: the exponent field of what E2M1's 0.5 becomes in E4M3, 1 to 12
  shift,     ///< f8.row, for any spread: 8 times how many powers of two the group's scale lies under the row's
};

constexpr int word_bytes(ScaleWords words) {
  return words == ScaleWords::staged || words == ScaleWords::pair_f16 || words == ScaleWords::pair_bf16 ? 4 : 2;
}

struct RecordLayout {
  int code_bytes = 0;  ///< of a record: 2048 or 4096
  int words = 0;       ///< of a row: 4, 2 or 1
  int word_bytes = 0;
  int bytes = 0;  ///< a multiple of 16
};

constexpr RecordLayout record_layout(int bits, int group, ScaleWords scales) {
  RecordLayout layout;
  layout.code_bytes = kRecordRows * kRecordCols * bits / 8;
  layout.words = group >= kRecordCols ? 1 : kRecordCols / group;
  layout.word_bytes = word_bytes(scales);
  layout.bytes = layout.code_bytes + kRecordRows * layout.words * layout.word_bytes;
  return layout;
}

/// Levels of f8.row's tables for a shift: beyond the last they are all 0.
inline constexpr int kShifts = 32;
/// Rows whose scales are so many powers of two apart, at most, have exponent words: no level is subnormal.
inline constexpr int kMostExponentSpread = 11;

/// The position, among 16 columns of bfloat16 activations, of column k: the lanes of a warp then hold, of each 16
/// columns, the same quads as of codes.
constexpr int bf16_position(int k) { return k / 4 * 2 + k % 2 + (k / 2 % 2) * 8; }

/// Activations for few tokens, binary16: the position, among 32 columns, of column k. Thread c of a quad then has in 16
/// bytes the columns that it has of codes, in the order in which codes become operands.
constexpr int f16_position(int k) { return k % 16 / 4 * 8 + k / 16 * 4 + k % 2 * 2 + k / 2 % 2; }
/// What those of columns 16 to 31 are multiplied by besides, as codes that meet them come out so much larger; and what
/// the sums of codes come out multiplied by.
constexpr float f16_second_scale(Code code) { return code == Code::nibble ? 0x1p-4f : 1.0f; }
inline constexpr float kF16CodeScale = 0x1p-24f;
/// The exponent that a token's largest value is brought to: 2^14 is half of binary16's last power of two.
inline constexpr int kF16Exponent = 14;

/// s8.nested's sums of a block of 256 columns, as operands: a sum of 32 codes is 32 a + b with |a| <= 127 and |b| <=
/// 16, both bfloat16. Where those of group g (0 to 7) of a token lie, in elements from the block's first token: 8
/// tokens by 16 bytes follow each other, of a and of b in turns.
constexpr int minima_position(int token, int g, bool rest) {
  return token / 8 * 128 + (rest ? 64 : 0) + token % 8 * 8 + g;
}

}  // namespace octalane::cuda
