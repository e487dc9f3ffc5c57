// From the codes of a record to the left operands of a matrix instruction. See cuda/records.h for their order.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/records.h"

namespace octalane::cuda {

__device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

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

  /// Quad q as bytes: the codes of integers, the levels + 128 of tables.
  __device__ __forceinline__ uint32_t quad(int q, const uint4& table) const {
    if constexpr (kCode == Code::byte) return word[q];
    if constexpr (kCode == Code::nibble) return (q == 0 ? word[0] : word[0] >> 4) & 0x0f0f0f0fu;
    return look_up(q == 0 ? word[0] : word[0] >> 16, table);
  }
};

/// The codes of a thread in a record: [j][h].
template <Code kCode>
__device__ __forceinline__ void load_codes(uint32_t record, int thread, Eight<kCode> (&codes)[2][2]) {
  if constexpr (kCode == Code::byte) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint4 v = shared_128(record + j * 2048 + thread * 16);
      codes[j][0].word[0] = v.x, codes[j][0].word[1] = v.y, codes[j][1].word[0] = v.z, codes[j][1].word[1] = v.w;
    }
  } else {
    const uint4 v = shared_128(record + thread * 16);
    codes[0][0].word[0] = v.x, codes[0][1].word[0] = v.y, codes[1][0].word[0] = v.z, codes[1][1].word[0] = v.w;
  }
}

/// Four bytes less `offset` each, as int8: offset = (128 - zero) * 0x01010101, no byte may carry.
__device__ __forceinline__ uint32_t as_signed(uint32_t bytes, uint32_t offset) {
  return (bytes + offset) ^ 0x80808080u;
}

/// core/restage.h's int8 of four bytes. `word` is a staged scale word: its upper half has 2^15 added, so that both
/// 16-bit lanes of the sum are right, whatever the signs: none borrows from the other.
__device__ __forceinline__ uint32_t restage(uint32_t bytes, uint32_t word) {
  const uint32_t scale = permute(word, 0, 0x9910);  // the low half, sign-extended
  const uint32_t bias = permute(word, word, 0x3232);
  const uint32_t even = (bytes & 0x00ff00ffu) * scale + bias;
  const uint32_t odd = permute(bytes, 0, 0x4341) * scale + bias;
  return permute(even, odd, 0x7351) ^ 0x80808080u;
}

struct Scale {
  float scale, bias;
};

/// Scale and bias in effect, as core/code_spec.h defines them, of a scale word; `super` is the pair of f16 above nested
/// words.
__device__ __forceinline__ Scale exact_scale(uint32_t word, ScaleWords words, uint32_t super) {
  const auto half = [](uint32_t bits) {
    float value;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "r"(bits));
    return value;
  };
  if (words == ScaleWords::nested) {
    const auto sub = [&](int byte) { return static_cast<float>(static_cast<int8_t>(word >> byte * 8)); };
    return {__fmul_rn(half(super), sub(0)), -__fmul_rn(half(super >> 16), sub(1))};
  }
  if (words == ScaleWords::pair_bf16 || words == ScaleWords::single_bf16) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  }
  return {half(word), half(word >> 16)};
}

/// The four weights of a quad in fp32, each operation rounded once. `offset` = 2^23 + zero.
__device__ __forceinline__ void weights_of(uint32_t bytes, const Scale& scale, float offset, bool has_bias,
                                           float (&w)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float level = __uint_as_float(permute(bytes, 0x4b000000u, 0x7440 + e)) - offset;
    w[e] = __fmul_rn(scale.scale, level);
    if (has_bias) w[e] = __fadd_rn(w[e], scale.bias);
  }
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace octalane::cuda
