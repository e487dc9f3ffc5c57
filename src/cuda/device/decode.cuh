// From the codes of a record to the left operands of a matrix instruction. See cuda/records.h for their order.
#pragma once

#include "cuda/device/instructions.cuh"
#include "cuda/device/shared.cuh"
#include "cuda/gemm_shapes.h"

namespace octalane::cuda {

/// Entries of a table of 16 bytes, by the low four nibbles of `codes`: two lookups of eight entries, and a choice by
/// the top bit of each nibble.
__device__ __forceinline__ uint32_t look_up(uint32_t codes, const uint4& table) {
  const uint32_t low = codes & 0x7777u, which = ((codes & 0x8888u) >> 1) | 0x3210u;
  return permute(permute(table.x, table.y, low), permute(table.z, table.w, low), which);
}

/// Two quads of codes, the columns that a thread has of 32 columns of a row.
template <Code kCode>
struct Eight {
  uint32_t word[code_bits(kCode) / 4];

  /// Quad q as bytes: the codes of integers and of E4M3, the table's entries.
  __device__ __forceinline__ uint32_t quad(int q, const uint4& table) const {
    if constexpr (code_bits(kCode) == 8) return word[q];
    if constexpr (kCode == Code::nibble) return (q == 0 ? word[0] : word[0] >> 4) & 0x0f0f0f0fu;
    return look_up(q == 0 ? word[0] : word[0] >> 16, table);
  }
};

/// The codes of a thread in a record, which begin at `at`: [j][h].
template <Code kCode>
__device__ __forceinline__ void load_codes(uint32_t at, Eight<kCode> (&codes)[2][2]) {
  if constexpr (code_bits(kCode) == 8) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint4 v = shared_128(at + j * 2048);
      codes[j][0].word[0] = v.x, codes[j][0].word[1] = v.y, codes[j][1].word[0] = v.z, codes[j][1].word[1] = v.w;
    }
  } else {
    const uint4 v = shared_128(at);
    codes[0][0].word[0] = v.x, codes[0][1].word[0] = v.y, codes[1][0].word[0] = v.z, codes[1][1].word[0] = v.w;
  }
}

/// 0, 0.5, 1, 1.5, 2, 3, 4, 6 times a power of two in E4M3: `exponent` is the field of what 0.5 becomes, 1 to 12.
__device__ __forceinline__ uint2 e2m1_magnitudes(uint32_t exponent) {
  return {exponent * 0x08080800u + 0x0c080000u, exponent * 0x08080808u + 0x1c181410u};
}

/// Two quads of E4M3 from the eight codes of a word: magnitudes by the low three bits of nibble 4 q + e, the sign of
/// code e in bit 8 e + 7 (q = 0) or 8 e + 3.
__device__ __forceinline__ uint32_t e4m3_quad(uint32_t word, int q, const uint2& magnitudes) {
  const uint32_t which = (q == 0 ? word : word >> 16) & 0x7777u;
  return permute(magnitudes.x, magnitudes.y, which) | ((q == 0 ? word : word << 4) & 0x80808080u);
}

/// Four bytes less `offset` each, as int8: offset = (128 - zero) * 0x01010101, no byte may carry.
__device__ __forceinline__ uint32_t as_signed(uint32_t bytes, uint32_t offset) {
  return (bytes + offset) ^ 0x80808080u;
}

/// A staged scale word, for both 16-bit lanes of a register. The word's upper half is the value of code `pivot` with
/// 128 and 2^15 added: every weight that occurs makes a lane between 0 and 2^16, so none borrows from the other.
struct StagedScale {
  uint32_t scale, bias;
  __device__ __forceinline__ StagedScale(uint32_t word, uint32_t minus_pivots)
      : scale(permute(word, 0, 0x9910)), bias(scale * minus_pivots + permute(word, word, 0x3232)) {}
};

/// core/restage.h's int8 of four bytes.
__device__ __forceinline__ uint32_t restage(uint32_t bytes, const StagedScale& s) {
  const uint32_t even = (bytes & 0x00ff00ffu) * s.scale + s.bias;
  const uint32_t odd = permute(bytes, 0, 0x4341) * s.scale + s.bias;
  return permute(even, odd, 0x7351) ^ 0x80808080u;
}

struct Scale {
  float scale, bias;
};

/// fp32 of the low 16 bits, which are a bfloat16 or a binary16.
__device__ __forceinline__ float widen(uint32_t bits, bool is_bf16) {
  const float value = widen_f16(bits);
  return is_bf16 ? __uint_as_float(bits << 16) : value;
}

/// The pair of binary16 above nested words.
__device__ __forceinline__ Scale super_scale(uint32_t pair) { return {widen(pair, false), widen(pair >> 16, false)}; }

/// Scale and bias in effect, as core/code_spec.h defines them, of a scale word.
template <Form kForm>
__device__ __forceinline__ Scale exact_scale(uint32_t word, bool is_bf16, const Scale& super) {
  if constexpr (kForm == Form::nested) {
    // 2^23 + 128 + an int8, in place of a slow conversion.
    const auto sub = [&](int byte) {
      return __uint_as_float(permute(word ^ 0x8080u, 0x4b000000u, 0x7440 + byte)) - 8388736.0f;
    };
    return {__fmul_rn(super.scale, sub(0)), -__fmul_rn(super.bias, sub(1))};
  }
  return {widen(word, is_bf16), kForm == Form::pair ? widen(word >> 16, is_bf16) : 0.0f};
}

/// The four weights of a quad in fp32, each operation of the definition rounded once: (2^n + code) * scale + (-2^n -
/// zero) * scale is exact before its one rounding, where the second product has at most 24 bits. It has more where
/// nested scales, of 18 bits, meet a table's 257 * 2^7: there the level comes first.
template <bool kBias, bool kLevelFirst, class Args>
__device__ __forceinline__ void weights_of(uint32_t bytes, const Scale& scale, const Args& args, float (&w)[4]) {
  const float less = scale.scale * args.offset;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float lifted = __uint_as_float(permute(bytes, args.magic, args.selector + e * args.step));
    w[e] = kLevelFirst ? __fmul_rn(lifted + args.offset, scale.scale) : fmaf(lifted, scale.scale, less);
    if constexpr (kBias) w[e] = __fadd_rn(w[e], scale.bias);
  }
}

/// The same of four E4M3: a level is exact in binary16, NaN included.
template <bool kBias>
__device__ __forceinline__ void weights_of_e4m3(uint32_t codes, const Scale& scale, float (&w)[4]) {
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    uint32_t levels;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }"
        : "=r"(levels)
        : "r"(e == 0 ? codes : codes >> 16));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      w[e + i] = __fmul_rn(widen(i == 0 ? levels : levels >> 16, false), scale.scale);
      if constexpr (kBias) w[e + i] = __fadd_rn(w[e + i], scale.bias);
    }
  }
}

}  // namespace octalane::cuda
