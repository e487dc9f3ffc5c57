// The weights of the kernels for few tokens: how a warp has them come, and how codes become operands.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

constexpr __host__ __device__ bool has_bias(ScaleWords kind) {
  return kind == ScaleWords::pair_f16 || kind == ScaleWords::pair_bf16 || kind == ScaleWords::nested;
}

/// `Words` of a row of a record, `Tokens` at most. A unit is kGemvStep records: 256 columns of a warp's 16 rows.
///
/// An instruction has eight columns. Where tokens are fewer, a column is a token of one of kParts groups: what the
/// others have of an instruction's columns of K is zero, and the sums of a set of kParts groups come out beside each
/// other, each for the thread that knows its scale. So the work of scales is shared by the lanes instead of repeated.
template <Code kCodeOf, ScaleWords kKindOf, int Words, int Tokens>
struct GemvShape {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleWords kKind = kKindOf;
  static constexpr int kWords = Words, kGroup = kRecordCols / Words, kQuads = kGroup / 16;
  static constexpr int kTokens = Tokens, kTiles = Tokens > 8 ? Tokens / 8 : 1;
  static constexpr int kParts = Tokens == 1 ? (Words == 1 ? 4 : 8) : Tokens == 4 ? 2 : 1;
  static constexpr int kSets = kGemvStep * Words / kParts, kSetQuads = kParts * kQuads;
  /// Instructions that wait for each other would take longer than the weights: sums of a set are some independent ones.
  static constexpr int kChains = kSetQuads > 8 ? 4 : kSetQuads > 2 ? 2 : 1;
  /// Sums of tokens are needed: weights have a bias, or codes a zero.
  static constexpr bool kSums = kCode != Code::table || has_bias(kKind);
  static constexpr bool kNested = kKind == ScaleWords::nested;

  static constexpr int kWordBytes = word_bytes(kKind), kRowBytes = Words * kWordBytes;
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kRowBytes;
  // Of a warp and unit: codes [record][j][lane] 16 bytes, scale words [record][row], super-group scales [row].
  static constexpr int kWarpCodes = kCodeBytes / 4, kWarpWords = 16 * kRowBytes;
  static constexpr int kWordsAt = kGemvStep * kWarpCodes, kSupersAt = kWordsAt + kGemvStep * kWarpWords;
  static constexpr __host__ __device__ GemvFormat format() {
    return {code_bits(kCode), kGroup, kWordBytes, kCode == Code::table};
  }
  static constexpr int kUnitBytes = kSupersAt + (kNested ? 64 : 0),
                       kUnits = gemv_units(code_bits(kCode), kCode == Code::table, Tokens);
};

/// A warp's units on their way: each thread copies for the warp, into slots that go round.
template <class S>
class GemvWeights {
 public:
  /// `records`: of the slice, from `begin` on. `ring` is the warp's, in shared memory.
  __device__ __forceinline__ GemvWeights(const GemvArgs& args, uint32_t ring, int begin, int records)
      : slots_(ring), at_(ring), missing_(-records) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t block = int64_t{blockIdx.y} * 2 + warp / 4;  // of 64 rows
    const uint8_t* const record = args.records + (block * args.panels * 2 + begin) * S::kRecordBytes;
    codes_ = record + (warp % 4 * 32 + lane) * 16;
    words_ = record + S::kCodeBytes + warp % 4 * S::kWarpWords + lane / S::kRowBytes * S::kRecordBytes +
             lane % S::kRowBytes * 16;
    if constexpr (S::kNested)
      supers_ = args.supers + (block * ((args.panels + 1) / 2) + begin / kGemvStep) * 64 + warp % 4 * 16 + lane % 4 * 4;
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
    }
    missing_ += kGemvStep;
    copies_commit();
  }

  uint32_t slots_, at_;
  int missing_;  ///< records behind the last of what is copied next, less than 0 as long as there are some
  const uint8_t *codes_, *words_;
  const uint32_t* supers_;
};

/// The scales of a thread's columns 2c and 2c + 1, rows r and r + 8, in a unit. Of one token columns are groups, of
/// four tokens of group c / 2 of a set, else tokens.
template <class S>
struct GemvScales {
  uint32_t at, supers_at;  ///< this thread's, of the unit
  Scale supers[2];
  float minus_zero;

  __device__ __forceinline__ GemvScales(uint32_t slot, int zero) : minus_zero(static_cast<float>(-zero)) {
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int group = S::kTokens == 1 ? 2 * c % S::kParts : 2 * c / S::kTokens;
    at = slot + S::kWordsAt + g * S::kRowBytes + group / S::kWords * S::kWarpWords + group % S::kWords * S::kWordBytes;
    if constexpr (S::kNested) {
#pragma unroll
      for (int h = 0; h < 2; ++h) supers[h] = super_scale(shared_32(slot + S::kSupersAt + g * 4 + h * 32));
    }
  }

  /// Of a set of groups, column 2c + i.
  __device__ __forceinline__ void load(int set, Scale (&scale)[2][2]) const {
    const int group = set * S::kParts;  // the lane's own is in `at`
    const uint32_t from = at + group / S::kWords * S::kWarpWords + group % S::kWords * S::kWordBytes;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t row = from + h * 8 * S::kRowBytes;
      uint32_t words[2];
      if constexpr (S::kTokens == 1 && S::kWords == 1) {
        words[0] = word(row), words[1] = word(row + S::kWarpWords);
      } else if constexpr (S::kTokens == 1 && S::kWordBytes == 4) {
        const uint2 both = shared_64(row);
        words[0] = both.x, words[1] = both.y;
      } else if constexpr (S::kTokens == 1) {
        words[0] = shared_32(row), words[1] = words[0] >> 16;
      } else {
        words[0] = word(row);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) scale[h][i] = S::kTokens > 1 && i == 1 ? scale[h][0] : decode(words[i], h);
    }
  }

 private:
  static __device__ __forceinline__ uint32_t word(uint32_t from) {
    return S::kWordBytes == 4 ? shared_32(from) : shared_16(from);
  }
  __device__ __forceinline__ Scale decode(uint32_t word, int h) const {
    constexpr bool kBf16 = S::kKind == ScaleWords::pair_bf16 || S::kKind == ScaleWords::single_bf16;
    Scale scale = exact_scale<form_of(S::kKind)>(word, kBf16, supers[h]);
    if constexpr (S::kCode != Code::table) scale.bias = fmaf(scale.scale, minus_zero, scale.bias);
    return scale;
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
