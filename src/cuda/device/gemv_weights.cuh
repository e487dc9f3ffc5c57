// What a thread of the kernels for few tokens holds of the weights, and how it becomes operands.
#pragma once

#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

constexpr __host__ __device__ bool has_bias(ScaleWords kind) {
  return kind == ScaleWords::pair_f16 || kind == ScaleWords::pair_bf16 || kind == ScaleWords::nested;
}

/// `Words` of a row of a record, `Tokens` at most, `Held` registers for what has not been multiplied yet.
///
/// An instruction has eight columns. Where tokens are fewer, a column is a token of one of kParts groups: what the
/// others have of an instruction's columns of K is zero, and the sums of kParts groups come out beside each other, each
/// for the thread that knows its scale. So the work of scales is shared by the lanes instead of repeated.
template <Code kCodeOf, ScaleWords kKindOf, int Words, int Tokens, int Held>
struct GemvShape {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleWords kKind = kKindOf;
  static constexpr int kWords = Words, kGroup = kRecordCols / Words, kQuads = kGroup / 16;
  static constexpr int kTokens = Tokens, kTiles = Tokens > 8 ? Tokens / 8 : 1;
  static constexpr int kParts = Tokens == 1 ? (Words == 1 ? 4 : 8) : Tokens == 4 ? 2 : 1;
  /// A unit is what one turn multiplies: records, and in them sets of kParts groups.
  static constexpr int kRecords = kParts > Words ? kParts / Words : 1, kSets = kRecords * Words / kParts;
  static_assert(kRecords <= kGemvStep);
  /// Sums of tokens are needed: weights have a bias, or codes a zero.
  static constexpr bool kSums = kCode != Code::table || has_bias(kKind);

  static constexpr int kCodeWords = code_bits(kCode), kWordBytes = word_bytes(kKind);
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRowBytes = Words * kWordBytes, kRecordBytes = kCodeBytes + kRecordRows * kRowBytes;
  /// Scale words of a thread, row and unit: of one token each of the two groups of its columns, else a word a set.
  static constexpr int kHeldWords = Tokens == 1 ? 2 : kSets;
  static constexpr bool kTogether = Tokens == 1 ? Words > 1 : Tokens >= 8;  ///< they lie together
  static constexpr int kHeldBytes = kHeldWords * kWordBytes;
  static constexpr int kWordRegisters = kTogether ? (kHeldBytes + 3) / 4 : kHeldWords;
  static constexpr int kRegisters = kRecords * kCodeWords + 2 * kWordRegisters + (kKind == ScaleWords::nested ? 2 : 0);
  static constexpr int kDepth = Held < 2 * kRegisters ? 2 : Held > 8 * kRegisters ? 8 : Held / kRegisters;
};

/// What a thread holds of a unit: rows r and r + 8.
template <class S>
struct GemvUnit {
  uint32_t codes[S::kRecords][S::kCodeWords / 4][4];
  uint32_t words[2][S::kWordRegisters];
  uint32_t supers[2];

  /// `codes_at` is this thread's, of the unit's first record; `words_at` the first of its scale words, `supers_at`
  /// likewise. Of a unit of several records `records` are there: what the others have is not multiplied.
  __device__ __forceinline__ void load(const uint8_t* codes_at, const uint8_t* words_at, const uint32_t* supers_at,
                                       int records) {
#pragma unroll
    for (int r = 0; r < S::kRecords; ++r) {
      if (S::kRecords > 1 && r >= records) break;
#pragma unroll
      for (int j = 0; j < S::kCodeWords / 4; ++j) stream(codes_at + r * S::kRecordBytes + j * 2048, codes[r][j]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint8_t* const at = words_at + h * 8 * S::kRowBytes;
      const int first = first_record();
      if constexpr (S::kTogether) {
        if (S::kRecords > 1 && first >= records) {
#pragma unroll
          for (int i = 0; i < S::kWordRegisters; ++i) words[h][i] = 0;
        } else if constexpr (S::kHeldBytes == 2) {
          words[h][0] = stream_16(at);
        } else {
          stream(at, words[h]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < S::kHeldWords; ++i) {
          // Of one token groups are records; else sets of a record follow each other.
          const int offset = S::kTokens == 1 ? i * S::kRecordBytes : i * S::kParts * S::kWordBytes;
          const bool there = S::kRecords == 1 || first + (S::kTokens == 1 ? i : 0) < min(records, S::kRecords);
          words[h][i] = !there ? 0 : S::kWordBytes == 2 ? stream_16(at + offset) : stream_32(at + offset);
        }
      }
      if constexpr (S::kKind == ScaleWords::nested) supers[h] = cached_32(supers_at + h * 8);
    }
  }

  /// Of a unit, the record where a thread's scale words begin, and the first of them there. A lane's columns 2c and
  /// 2c + 1 are, of one token, groups; of four, tokens of group c / 2 of the set.
  static __device__ __forceinline__ int first_record() { return first_group() / S::kWords; }
  static __device__ __forceinline__ int first_word() { return first_group() % S::kWords; }

  __device__ __forceinline__ Scale scale(int h, int word, int zero) const {
    uint32_t bits;
    if constexpr (!S::kTogether || S::kWordBytes == 4)
      bits = words[h][word];
    else
      bits = words[h][word / 2] >> word % 2 * 16;
    constexpr bool kBf16 = S::kKind == ScaleWords::pair_bf16 || S::kKind == ScaleWords::single_bf16;
    Scale scale =
        exact_scale<form_of(S::kKind)>(bits, kBf16, super_scale(S::kKind == ScaleWords::nested ? supers[h] : 0));
    if constexpr (S::kCode != Code::table) scale.bias = fmaf(scale.scale, static_cast<float>(-zero), scale.bias);
    return scale;
  }

 private:
  static __device__ __forceinline__ int first_group() {
    const int c = threadIdx.x % 4;
    if constexpr (S::kTokens == 1) return 2 * c;
    if constexpr (S::kTokens == 4) return c / 2;
    return 0;
  }
};

/// From codes to pairs of levels in binary16. Integers are its subnormals, which the tensor cores multiply exactly: a
/// nibble in bits 2 to 5 is 2^-22 times itself, one in bits 6 to 9 16 times that, a byte in the lowest bits 2^-24 times
/// itself; so no number is made of a code, only bits are moved. What is 16 times as large meets tokens that are 16
/// times as small. Lower bits would do for nibbles too, but an instruction's sums keep some 24 bits below the largest
/// product that its operands' exponents allow, and a subnormal's exponent is that of the largest one.
template <Code kCode>
struct Levels {
  const uint8_t* table;  ///< this lane's copy

  __device__ __forceinline__ explicit Levels(const uint8_t* shared) : table(shared + threadIdx.x % 32 * 4) {}

  /// Quad q of the eight codes of `at`: columns 0 and 2, and 1 and 3; of tables 0 and 1, and 2 and 3.
  __device__ __forceinline__ void quad(const uint32_t* at, int q, uint32_t& first, uint32_t& second) const {
    if constexpr (kCode == Code::nibble) {
      const uint32_t mask = q == 0 ? 0x003c003c : 0x03c003c0;
      first = at[0] << 2 & mask, second = at[0] >> 6 & mask;
    } else if constexpr (kCode == Code::byte) {
      first = permute(at[q], 0, 0x4240), second = permute(at[q], 0, 0x4341);
    } else {
      const uint32_t w = at[0];
      first = look_up(q == 0 ? w << 7 : w >> 9), second = look_up(q == 0 ? w >> 1 : w >> 17);
    }
  }

 private:
  __device__ __forceinline__ uint32_t look_up(uint32_t w) const {
    return *reinterpret_cast<const uint32_t*>(table + (w & 0x7f80u));
  }
};

/// Pairs of levels by pairs of codes, a copy for each lane, so that lookups never meet in a bank.
__device__ __forceinline__ void fill_table(const GemvArgs& args, uint8_t* shared) {
  const auto level = [&](int code) {
    return static_cast<float>(static_cast<int>(args.table[code / 4] >> code % 4 * 8 & 255u) - 128);
  };
  for (int entry = threadIdx.x; entry < 256; entry += kGemvThreads) {
    const uint32_t pair = pack_f16(level(entry % 16), level(entry / 16));
    for (int i = 0; i < 8; ++i)  // threads begin apart, for the banks
      *reinterpret_cast<uint4*>(shared + entry * 128 + (i + entry) % 8 * 16) = uint4{pair, pair, pair, pair};
  }
}

}  // namespace octalane::cuda
