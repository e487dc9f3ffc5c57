// The weights of the kernels for few tokens: how a warp has them come, and how codes become operands.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

/// `Words` of a row of a record, `Tokens` at most. A unit is kGemvStep records: 256 columns of a warp's 16 rows.
///
/// An instruction has eight columns. Where tokens are fewer, columns repeat them, and so do the sums; lanes that have
/// the same then take one of kParts groups each: the work of scales is shared by them instead of repeated.
template <Code kCodeOf, ScaleWords kKindOf, int Words, int Tokens>
struct GemvShape {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleWords kKind = kKindOf;
  static constexpr int kWords = Words, kGroup = kRecordCols / Words, kQuads = kGroup / 16;
  static constexpr int kTokens = Tokens, kTiles = Tokens > 8 ? Tokens / 8 : 1;
  static constexpr int kParts = Tokens == 1 ? 4 : Tokens == 4 ? 2 : 1;
  static constexpr int kSets = kGemvStep * Words / kParts, kSetQuads = kParts * kQuads;
  static constexpr bool kNested = kKind == ScaleWords::nested;

  static constexpr int kWordBytes = word_bytes(kKind), kRowBytes = Words * kWordBytes;
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kRowBytes;
  // Of a warp and unit: codes [record][j][lane] 16 bytes, scale words [record][row], super-group scales [row].
  static constexpr int kWarpCodes = kCodeBytes / 4, kWarpWords = 16 * kRowBytes;
  static constexpr int kWordsAt = kGemvStep * kWarpCodes, kSupersAt = kWordsAt + kGemvStep * kWarpWords;
  static constexpr __host__ __device__ GemvFormat format() { return {code_bits(kCode), kGroup, kWordBytes}; }
  static constexpr int kUnitBytes = kSupersAt + (kNested ? 64 : 0), kUnits = gemv_units(code_bits(kCode), Tokens);
};

/// The part of a warp: groups of 16 rows from `group` to `groups` in steps of `stride`, and of each the steps from
/// `begin` to `end`.
struct GemvPart {
  int group, groups, stride, begin, end;
};

/// A warp's units on their way: each thread copies for the warp, into slots that go round.
template <class S>
class GemvWeights {
 public:
  /// `ring` is the warp's, in shared memory.
  __device__ __forceinline__ GemvWeights(const GemvArgs& args, const GemvPart& part, uint32_t ring)
      : args_(args), part_(part), slots_(ring), at_(ring) {
    begin_group();
  }
  /// Begins with as many units as there are slots.
  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < S::kUnits; ++i) begin_next(slots_ + i * S::kUnitBytes);
  }
  /// Waits for the oldest unit, which lies at slot().
  __device__ __forceinline__ void wait() const {
    copies_wait<S::kUnits - 1>();
    __syncwarp();
  }
  __device__ __forceinline__ uint32_t slot() const { return at_; }
  /// Done with the unit: its slot takes another.
  __device__ __forceinline__ void next() {
    __syncwarp();
    begin_next(at_);
    at_ = at_ == slots_ + (S::kUnits - 1) * S::kUnitBytes ? slots_ : at_ + S::kUnitBytes;
  }

 private:
  __device__ __forceinline__ void begin_group() {
    missing_ = part_.begin * kGemvStep - min(part_.end * kGemvStep, args_.panels * 2);
    if (part_.group >= part_.groups) missing_ = 0;
    if (missing_ >= 0) return;
    const int lane = threadIdx.x % 32, quarter = part_.group % 4;
    const int64_t block = part_.group / 4;  // of 64 rows
    const uint8_t* const record =
        args_.records + (block * args_.panels * 2 + part_.begin * kGemvStep) * S::kRecordBytes;
    codes_ = record + (quarter * 32 + lane) * 16;
    words_ = record + S::kCodeBytes + quarter * S::kWarpWords + lane / S::kRowBytes * S::kRecordBytes +
             lane % S::kRowBytes * 16;
    if constexpr (S::kNested)
      supers_ = args_.supers + (block * ((args_.panels + 1) / 2) + part_.begin) * 64 + quarter * 16 + lane % 4 * 4;
  }

  /// Begins to copy the next unit into the slot that comes up; nothing behind the last, but it counts.
  __device__ __forceinline__ void begin_next(uint32_t slot) {
    const int lane = threadIdx.x % 32;
    if (missing_ < 0) {
#pragma unroll
      for (int r = 0; r < kGemvStep; ++r) {
        // What a last unit does not have meets tokens that are zero.
        if (r > 1 && missing_ + r >= 0) break;  // records come in pairs
#pragma unroll
        for (int j = 0; j < S::kWarpCodes / 512; ++j)
          copy_16(slot + r * S::kWarpCodes + j * 512 + lane * 16, codes_ + r * S::kRecordBytes + j * 2048);
      }
#pragma unroll
      for (int i = 0; i < kGemvStep * S::kRowBytes; i += 32) {
        const int chunk = i + lane;
        if (chunk < kGemvStep * S::kRowBytes)
          copy_16(slot + S::kWordsAt + chunk * 16, words_ + i / S::kRowBytes * S::kRecordBytes,
                  missing_ + chunk / S::kRowBytes < 0);
      }
      if constexpr (S::kNested) {
        if (lane < 4) copy_16(slot + S::kSupersAt + lane * 16, supers_);
        supers_ += 64;
      }
      codes_ += kGemvStep * S::kRecordBytes, words_ += kGemvStep * S::kRecordBytes;
      missing_ += kGemvStep;
      if (missing_ >= 0) {
        part_.group += part_.stride;
        begin_group();
      }
    }
    copies_commit();
  }

  const GemvArgs& args_;
  GemvPart part_;
  uint32_t slots_, at_;
  int missing_;  ///< of the group, records behind the last of what is copied next: 0 and more when there are none
  const uint8_t *codes_, *words_;
  const uint32_t* supers_;
};

/// A thread's group in a set: lanes c = 0..3 of a quad take groups of one token each, or pairs of them of four tokens.
template <class S>
__device__ __forceinline__ int own_part() {
  const int c = threadIdx.x % 4;
  return S::kParts == 4 ? c : S::kParts == 2 ? c / 2 : 0;
}

/// The scales of a thread's group of each set, rows r and r + 8, in a unit.
template <class S>
struct GemvScales {
  uint32_t at;  ///< this thread's, of the unit
  Scale supers[2];
  float minus_zero;

  __device__ __forceinline__ GemvScales(uint32_t slot, int zero) : minus_zero(static_cast<float>(-zero)) {
    const int g = threadIdx.x % 32 / 4;
    at = slot + S::kWordsAt + g * S::kRowBytes + offset(own_part<S>());
    if constexpr (S::kNested) {
#pragma unroll
      for (int h = 0; h < 2; ++h) supers[h] = super_scale(shared_32(slot + S::kSupersAt + g * 4 + h * 32));
    }
  }

  __device__ __forceinline__ Scale load(int set, int h) const {
    const uint32_t from = at + offset(set * S::kParts) + h * 8 * S::kRowBytes;
    const uint32_t word = S::kWordBytes == 4 ? shared_32(from) : shared_16(from);
    constexpr bool kBf16 = S::kKind == ScaleWords::pair_bf16 || S::kKind == ScaleWords::single_bf16;
    Scale scale = exact_scale<form_of(S::kKind)>(word, kBf16, supers[h]);
    scale.bias = fmaf(scale.scale, minus_zero, scale.bias);
    return scale;
  }

 private:
  static __device__ __forceinline__ uint32_t offset(int group) {
    return group / S::kWords * S::kWarpWords + group % S::kWords * S::kWordBytes;
  }
};

/// From codes to pairs of levels in binary16. Integers are its subnormals, which the tensor cores multiply exactly: a
/// nibble in bits 2 to 5 is 2^-22 times itself, one in bits 6 to 9 16 times that, a byte in the lowest bits 2^-24 times
/// itself; so no number is made of a code, only bits are moved. What is 16 times as large meets tokens that are 16
/// times as small. Lower bits would do for nibbles too, but an instruction's sums keep some 24 bits below the largest
/// product that its operands' exponents allow, and a subnormal's exponent is that of the largest one.
template <Code kCode>
struct Levels {
  uint4 table;

  __device__ __forceinline__ explicit Levels(const GemvArgs& args)
      : table{args.table[0], args.table[1], args.table[2], args.table[3]} {}

  /// Quad q of the eight codes of `at`: columns 0 and 2, and 1 and 3; of tables levels + 128.
  __device__ __forceinline__ void quad(const uint32_t* at, int q, uint32_t& first, uint32_t& second) const {
    if constexpr (kCode == Code::nibble) {
      const uint32_t mask = q == 0 ? 0x003c003c : 0x03c003c0;
      first = at[0] << 2 & mask, second = at[0] >> 6 & mask;
    } else {
      const uint32_t bytes = kCode == Code::byte ? at[q] : look_up(q == 0 ? at[0] : at[0] >> 16, table);
      first = permute(bytes, 0, 0x4240), second = permute(bytes, 0, 0x4341);
    }
  }
};

}  // namespace octalane::cuda
