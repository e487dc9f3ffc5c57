// What a thread of the kernels for few tokens holds of the weights, and how it becomes operands.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

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
  static_assert(kGemvStep % kRecords == 0);

  static constexpr bool kNested = kKind == ScaleWords::nested;
  static constexpr int kCodeWords = code_bits(kCode), kWordBytes = word_bytes(kKind);
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRowBytes = Words * kWordBytes, kRecordBytes = kCodeBytes + kRecordRows * kRowBytes;
  /// Scale words of a thread, row and unit: of one token each of the two groups of its columns, else a word a set.
  static constexpr int kHeldWords = Tokens == 1 ? 2 : kSets;
  static constexpr bool kTogether = Tokens == 1 ? Words > 1 : Tokens >= 8;  ///< they lie together
  static constexpr int kHeldBytes = kHeldWords * kWordBytes;
  static constexpr int kWordRegisters = kTogether ? (kHeldBytes + 3) / 4 : kHeldWords;
  static constexpr int kRegisters = kRecords * kCodeWords + 2 * kWordRegisters + (kNested ? 2 : 0);
  /// Units that are on their way at once.
  static constexpr int kDepth = Held < 2 * kRegisters ? 2 : Held > 8 * kRegisters ? 8 : Held / kRegisters;
};

/// What a thread holds of a unit: rows r and r + 8.
template <class S>
struct GemvUnit {
  uint32_t codes[S::kRecords][S::kCodeWords / 4][4];
  uint32_t words[2][S::kWordRegisters];
  uint32_t supers[2];

  /// `codes_at` is this thread's, of the unit's first record; `words_at` the first of its scale words, `supers_at`
  /// likewise. Of a unit of several records `records` are there, in pairs: what the others have meets tokens that are
  /// zero, and their scales are.
  __device__ __forceinline__ void load(const uint8_t* codes_at, const uint8_t* words_at, const uint32_t* supers_at,
                                       int records) {
    if (S::kRecords <= 2 || records >= S::kRecords)
      load_records<S::kRecords>(codes_at, words_at);
    else
      load_records<2>(codes_at, words_at);
    if constexpr (S::kNested) {
#pragma unroll
      for (int h = 0; h < 2; ++h) supers[h] = cached_32(supers_at + h * 8);
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
    Scale scale = exact_scale<form_of(S::kKind)>(bits, kBf16, super_scale(S::kNested ? supers[h] : 0));
    scale.bias = fmaf(scale.scale, static_cast<float>(-zero), scale.bias);
    return scale;
  }

 private:
  template <int Records>
  __device__ __forceinline__ void load_records(const uint8_t* codes_at, const uint8_t* words_at) {
#pragma unroll
    for (int r = 0; r < Records; ++r) {
#pragma unroll
      for (int j = 0; j < S::kCodeWords / 4; ++j) stream(codes_at + r * S::kRecordBytes + j * 2048, codes[r][j]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint8_t* const at = words_at + h * 8 * S::kRowBytes;
      if constexpr (S::kTogether) {
        if (is_there<Records>(0)) {
          if constexpr (S::kHeldBytes == 2)
            words[h][0] = stream_16(at);
          else
            stream(at, words[h]);
        } else {
#pragma unroll
          for (int i = 0; i < S::kWordRegisters; ++i) words[h][i] = 0;
        }
      } else {
#pragma unroll
        for (int i = 0; i < S::kHeldWords; ++i) {
          // Of one token groups are records; else sets of a record follow each other.
          const int offset = S::kTokens == 1 ? i * S::kRecordBytes : i * S::kParts * S::kWordBytes;
          if (!is_there<Records>(S::kTokens == 1 ? i : 0))
            words[h][i] = 0;
          else
            words[h][i] = S::kWordBytes == 2 ? stream_16(at + offset) : stream_32(at + offset);
        }
      }
    }
  }
  /// Whether the record of a thread's scale words, or the one behind it, is among so many.
  template <int Records>
  static __device__ __forceinline__ bool is_there(int behind) {
    const int most = S::kTokens == 1 ? 6 / S::kWords + behind : S::kTokens == 4 ? 1 / S::kWords : 0;
    return most < Records || first_record() + behind < Records;
  }
  static __device__ __forceinline__ int first_group() {
    const int c = threadIdx.x % 4;
    if constexpr (S::kTokens == 1) return 2 * c;
    if constexpr (S::kTokens == 4) return c / 2;
    return 0;
  }
};

/// The part of a warp: groups of 16 rows from `group` to `groups` in steps of `stride`, and of each the steps from
/// `begin` to `end`.
struct GemvPart {
  int group, groups, stride, begin, end;
};

/// Walks a warp's part, ahead of what is multiplied: every load takes the next unit.
template <class S>
class GemvLoads {
 public:
  __device__ __forceinline__ GemvLoads(const GemvArgs& args, const GemvPart& part) : args_(args), part_(part) {
    begin_group();
  }
  /// Nothing behind the last.
  __device__ __forceinline__ void next(GemvUnit<S>& to) {
    if (left_ <= 0) return;
    to.load(codes_, words_, supers_ + unit_ / (kGemvStep / S::kRecords) * 64, left_);
    codes_ += S::kRecords * S::kRecordBytes, words_ += S::kRecords * S::kRecordBytes;
    left_ -= S::kRecords, ++unit_;
    if (left_ > 0) return;
    part_.group += part_.stride;
    begin_group();
  }

 private:
  __device__ __forceinline__ void begin_group() {
    if (part_.group >= part_.groups) return;
    left_ = min(part_.end * kGemvStep, args_.panels * 2) - part_.begin * kGemvStep;
    unit_ = 0;
    const int lane = threadIdx.x % 32, row = part_.group % 4 * 16 + lane / 4;
    const int64_t block = part_.group / 4;  // of 64 rows
    const uint8_t* const record =
        args_.records + (block * args_.panels * 2 + part_.begin * kGemvStep) * S::kRecordBytes;
    codes_ = record + (part_.group % 4 * 32 + lane) * 16;
    words_ = record + S::kCodeBytes + row * S::kRowBytes + GemvUnit<S>::first_record() * S::kRecordBytes +
             GemvUnit<S>::first_word() * S::kWordBytes;
    supers_ = args_.supers + (block * ((args_.panels + 1) / 2) + part_.begin) * 64 + row;
  }

  const GemvArgs& args_;
  GemvPart part_;
  int left_ = 0;  ///< records of the group
  int unit_ = 0;  ///< of the group
  const uint8_t *codes_ = nullptr, *words_ = nullptr;
  const uint32_t* supers_ = nullptr;
};

/// From codes to pairs of levels in binary16. Integers are its subnormals, which the tensor cores multiply exactly: a
/// code in the lowest bits is 2^-24 times itself, a nibble above it 16 times that; so no number is made of a code, only
/// bits are masked. What is 16 times as large meets tokens that are 16 times as small. An instruction's sums keep some
/// 24 bits below the largest product that its operands' exponents allow, and a subnormal's exponent is that of the
/// largest one: of the 16 columns of an instruction, 2^-24 of 2^10 times the largest value is what may be lost.
template <Code kCode>
struct Levels {
  uint4 table;

  __device__ __forceinline__ explicit Levels(const GemvArgs& args)
      : table{args.table[0], args.table[1], args.table[2], args.table[3]} {}

  /// Quad q of the eight codes of `at`: columns 0 and 2, and 1 and 3; of tables levels + 128.
  __device__ __forceinline__ void quad(const uint32_t* at, int q, uint32_t& first, uint32_t& second) const {
    if constexpr (kCode == Code::nibble) {
      const uint32_t mask = q == 0 ? 0x000f000f : 0x00f000f0;
      first = at[0] & mask, second = at[0] >> 8 & mask;
    } else {
      const uint32_t bytes = kCode == Code::byte ? at[q] : look_up(q == 0 ? at[0] : at[0] >> 16, table);
      first = permute(bytes, 0, 0x4240), second = permute(bytes, 0, 0x4341);
    }
  }
};

}  // namespace octalane::cuda
