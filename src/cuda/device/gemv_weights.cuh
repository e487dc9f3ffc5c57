// What a thread of the kernels for few tokens holds of the weights, and how it becomes operands.
#pragma once

#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

constexpr __host__ __device__ bool has_bias(ScaleWords kind) {
  return kind == ScaleWords::pair_f16 || kind == ScaleWords::pair_bf16 || kind == ScaleWords::nested;
}

/// `Words` of a row of a record, `Tiles` of eight tokens, `Held` registers for what has not been multiplied yet.
template <Code kCodeOf, ScaleWords kKindOf, int Words, int Tiles, int Held>
struct GemvShape {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleWords kKind = kKindOf;
  static constexpr int kWords = Words, kTiles = Tiles, kGroup = kRecordCols / Words;
  static constexpr int kCodeWords = code_bits(kCode);          ///< of a thread and record
  static constexpr int kRowBytes = Words * word_bytes(kKind);  ///< of scale words, a row and record
  static constexpr int kRowWords = (kRowBytes + 3) / 4;
  static constexpr int kRegisters = kCodeWords + 2 * kRowWords + (kKind == ScaleWords::nested ? 2 : 0);
  static constexpr int kDepth = Held < 2 * kRegisters ? 2 : Held > 8 * kRegisters ? 8 : Held / kRegisters;
};

/// What a thread holds of a record: rows r and r + 8.
template <class S>
struct GemvRecord {
  uint32_t codes[S::kCodeWords / 4][4];
  uint32_t words[2][S::kRowWords];
  uint32_t supers[2];

  /// `codes_at` and `words_at` are this thread's, of the record.
  __device__ __forceinline__ void load(const uint8_t* codes_at, const uint8_t* words_at, const uint32_t* supers_at) {
#pragma unroll
    for (int j = 0; j < S::kCodeWords / 4; ++j) stream(codes_at + j * 2048, codes[j]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (S::kRowBytes == 2)
        words[h][0] = stream_16(words_at + h * 8 * S::kRowBytes);
      else
        stream(words_at + h * 8 * S::kRowBytes, words[h]);
      if constexpr (S::kKind == ScaleWords::nested) supers[h] = cached_32(supers_at + h * 8);
    }
  }

  __device__ __forceinline__ Scale scale(int h, int word) const {
    const uint32_t bits = word_bytes(S::kKind) == 4 ? words[h][word] : words[h][word / 2] >> word % 2 * 16;
    constexpr bool kBf16 = S::kKind == ScaleWords::pair_bf16 || S::kKind == ScaleWords::single_bf16;
    return exact_scale<form_of(S::kKind)>(bits, kBf16, super_scale(S::kKind == ScaleWords::nested ? supers[h] : 0));
  }
};

/// From codes to pairs of levels in bfloat16.
template <Code kCode>
struct Levels {
  uint32_t offset;       ///< integers: what is added at the end, twice
  const uint8_t* table;  ///< this lane's copy

  __device__ __forceinline__ Levels(const GemvArgs& args, const uint8_t* shared) {
    if constexpr (kCode == Code::table) {
      table = shared + threadIdx.x % 32 * 4;
    } else {
      const float value = static_cast<float>((kCode == Code::nibble ? -128 : 128) - args.zero);
      offset = permute(__float_as_uint(value), 0, 0x3232);
    }
  }

  /// Quad q of the eight codes of `at`: columns 0 and 2, and 1 and 3; of tables 0 and 1, and 2 and 3.
  __device__ __forceinline__ void quad(const uint32_t* at, int q, uint32_t& first, uint32_t& second) const {
    if constexpr (kCode == Code::nibble) {
      first = nibbles(at[0] >> 4 * q), second = nibbles(at[0] >> (8 + 4 * q));
    } else if constexpr (kCode == Code::byte) {
      first = bytes(at[q]), second = bytes(at[q] >> 8);
    } else {
      const uint32_t w = at[0];
      first = look_up(q == 0 ? w << 7 : w >> 9), second = look_up(q == 0 ? w >> 1 : w >> 17);
    }
  }

 private:
  static constexpr uint32_t kOnes = 0x3f803f80;

  /// 0x4300 | code is 128 + code.
  __device__ __forceinline__ uint32_t nibbles(uint32_t w) const {
    return fma_bf16(and_or(w, 0x000f000f, 0x43004300), kOnes, offset);
  }
  /// 128 + the low seven bits, less 256 or, with the eighth bit, 128: code - 128. Each step is exact.
  __device__ __forceinline__ uint32_t bytes(uint32_t w) const {
    const uint32_t less = and_xor(w, 0x00800080, 0xc380c380);
    return fma_bf16(fma_bf16(and_or(w, 0x007f007f, 0x43004300), kOnes, less), kOnes, offset);
  }
  __device__ __forceinline__ uint32_t look_up(uint32_t w) const {
    return *reinterpret_cast<const uint32_t*>(table + (w & 0x7f80u));
  }
};

/// Pairs of levels by pairs of codes, a copy for each lane, so that lookups never meet in a bank.
__device__ __forceinline__ void fill_table(const GemvArgs& args, uint8_t* shared) {
  const auto level = [&](int code) {
    const int value = static_cast<int>(args.table[code / 4] >> code % 4 * 8 & 255u) - 128;
    return __float_as_uint(static_cast<float>(value));
  };
  for (int entry = threadIdx.x; entry < 256; entry += kGemvThreads) {
    const uint32_t pair = permute(level(entry % 16), level(entry / 16), 0x7632);
    for (int i = 0; i < 8; ++i)  // threads begin apart, for the banks
      *reinterpret_cast<uint4*>(shared + entry * 128 + (i + entry) % 8 * 16) = uint4{pair, pair, pair, pair};
  }
}

}  // namespace octalane::cuda
