// y[tokens, rows] = x W^T with weights at 4 or 8 bits, on mma.sync: for devices of sm_80 and later. Weights are its
// 16-row left operand, decoded into registers once for all tokens of a warp; tokens its right one, read from shared
// memory as swizzled rows of 128 bytes. All threads copy, some stages ahead; two blocks of a multiprocessor hide each
// other's waiting. The lanes' arithmetic is that of gemm.cuh.
#pragma once

#include <type_traits>

#include "cuda/device/decode.cuh"
#include "cuda/device/gemm_mma_stages.cuh"

namespace octalane::cuda {

/// Where a thread's weights lie in a stage: slices i = 0, 1 of 16 rows, rows 8 h further.
template <class S>
struct MmaWeights {
  uint32_t codes, words, supers;
  int record_bytes, row_bytes, second_word;

  __device__ __forceinline__ MmaWeights(const GemmMmaArgs& args, const MmaPlace& place, uint32_t base) {
    const int half = place.row / 64, row = place.row % 64, lane = threadIdx.x % 32;
    constexpr bool kEither = S::kForm != Form::nested && S::kDrain != MmaDrain::group;
    const int count = kEither ? args.words : S::kWords;
    record_bytes = kEither ? args.record_bytes : S::kRecordBytes;
    row_bytes = count * word_bytes(S::kForm);
    second_word = count == 1 ? 0 : word_bytes(S::kForm);
    const uint32_t records = base + S::kRecordsAt + half * S::kBlockBytes;
    codes = kept(records + (row / 16 * 32 + lane) * 16);
    words = kept(records + S::kCodeBytes + row * row_bytes);
    supers = kept(base + S::kSupersAt + place.row * 4);
  }

  __device__ __forceinline__ void load(int stage, int record, Eight<S::kCode> (&to)[2][2][2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) load_codes(codes + stage + record * record_bytes + i * 512, to[i]);
  }
  /// The scale word of columns 32 j + 16 q.
  __device__ __forceinline__ uint32_t word(int stage, int record, int j, int q, int i, int h) const {
    const uint32_t at = words + stage + record * record_bytes + (2 * i + h) * 8 * row_bytes +
                        (S::kWords == 4 ? (2 * j + q) * word_bytes(S::kForm) : j * second_word);
    return word_bytes(S::kForm) == 4 ? shared_32(at) : shared_16(at);
  }
  __device__ __forceinline__ Scale super(int stage, int i, int h) const {
    if constexpr (S::kForm != Form::nested) return {};
    return super_scale(shared_32(supers + stage + (2 * i + h) * 32));
  }
};

/// Where lanes read tokens: of each 16 the first eight's 16 bytes, their next 16, and the others' likewise.
template <class S>
struct MmaTokens {
  uint32_t row, chunk;
  __device__ __forceinline__ MmaTokens(const MmaPlace& place, uint32_t base) {
    const int lane = threadIdx.x % 32, token = place.token - lane % 4 * 2 + lane / 16 * 8 + lane % 8;
    row = kept(base + token * 128);
    chunk = kept(((lane / 8 % 2) ^ (lane % 8)) * 16);
  }
  /// Tokens 16 p on, 32 bytes of K from 32 `step` on: b[0], b[1] of the first eight, b[2], b[3] of the others.
  __device__ __forceinline__ void load(int stage, int step, int p, uint32_t (&b)[4]) const {
    load_matrices(row + stage + p * 2048 + (chunk ^ (step * 32)), b);
  }
};

/// 1.5 * 2^23 as bits: a sum of less than 2^22 that starts here is, read as fp32, that much more. In place of a
/// conversion.
constexpr int kLifted = 0x4b400000;
__device__ __forceinline__ float lowered(int sum) { return __int_as_float(sum) - 12582912.0f; }
/// The same times a scale of at most 22 bits and less than 2^104, rounded once.
__device__ __forceinline__ float lowered(int sum, float scale) {
  return fmaf(__int_as_float(sum), scale, scale * -12582912.0f);
}

/// Writes the tile: get(i, o, values) gives, for e = 0..3, the outputs of rows 16 i + 8 (e / 2) further than the
/// place's and tokens 8 o + e % 2 further.
template <class S, class Get>
__device__ __forceinline__ void write_outputs(const GemmMmaArgs& args, const MmaPlace& place, Get get) {
  const int row = place.tile_row + place.row, token = place.tile_token + place.token;
  const auto write = [&](auto* y, auto convert) {
#pragma unroll
    for (int o = 0; o < S::kWarpTokens / 8; ++o) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float values[4];
        get(i, o, values);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int m = token + 8 * o + e % 2, n = row + 16 * i + 8 * (e / 2);
          if (m < args.tokens && n < args.rows) y[m * args.y_stride + n] = convert(values[e]);
        }
      }
    }
  };
  if (args.y_is_f32)
    write(static_cast<float*>(args.y), [](float value) { return value; });
  else
    write(static_cast<uint16_t*>(args.y), [](float value) { return static_cast<uint16_t>(pack_bf16(value, 0)); });
}

/// The scales of the thread's rows, of one unit.
__device__ __forceinline__ void load_row_scales(const float* from, float (&to)[2][2]) {
#pragma unroll
  for (int n = 0; n < 4; ++n) to[n / 2][n % 2] = from[n * 8];
}

/// bf16, s8.row, s8.xblock and s8.block.
template <class S>
__device__ __forceinline__ void multiply_whole(const GemmMmaArgs& args, const MmaPlace& place, uint8_t* shared) {
  using Sum = std::conditional_t<S::kWide, float, int>;
  constexpr bool kBlocks = S::kBlocks, kBlock = S::kDrain == MmaDrain::block;
  constexpr int kEights = S::kWarpTokens / 8;
  const uint32_t base = shared_address(shared);
  const MmaWeights<S> weights(args, place, base);
  const MmaTokens<S> tokens(place, base);
  const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
  Sum sums[2][kEights][4];
  float totals[2][kBlocks ? kEights : 1][4];
  const auto begin = [&] {
#pragma unroll
    for (int n = 0; n < 8 * kEights; ++n) sums[n / 4 / kEights][n / 4 % kEights][n % 4] = kBlocks ? kLifted : 0;
  };
  begin();
  if constexpr (kBlocks) {
#pragma unroll
    for (int n = 0; n < 8 * kEights; ++n) totals[n / 4 / kEights][n / 4 % kEights][n % 4] = 0;
  }

  const auto products = [&](int stage, int step, const uint32_t(&a)[2][4]) {
    if constexpr (S::kWide) __syncwarp();  // the assembler hoists nothing further: registers suffice
#pragma unroll
    for (int p = 0; p < kEights / 2; ++p) {
      uint32_t b[4];
      tokens.load(stage, step, p, b);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if constexpr (S::kWide)
          mma_bf16(sums[n % 2][2 * p + n / 2], a[n % 2], b[n / 2 * 2], b[n / 2 * 2 + 1], false);
        else
          mma_s8(sums[n % 2][2 * p + n / 2], a[n % 2], b[n / 2 * 2], b[n / 2 * 2 + 1]);
      }
    }
  };
  run_stages<S>(args, place, base, [&](int stage, int k) {
#pragma unroll
    for (int r = 0; r < S::kRecords; ++r) {
      Eight<S::kCode> codes[2][2][2];
      weights.load(stage, r, codes);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t a[2][4];
        if constexpr (S::kWide) {
          Scale scales[2][2];
#pragma unroll
          for (int q = 0; q < 2; ++q) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
              const int i = n / 2, h = n % 2;
              if (q == 0 || S::kWords == 4)
                scales[i][h] = exact_scale<S::kForm>(weights.word(stage, r, j, q, i, h), args.bf16_scales != 0,
                                                     weights.super(stage, i, h));
              float w[4];
              weights_of<S::kBias, S::kForm == Form::nested && S::kCode == Code::table>(codes[i][j][h].quad(q, table),
                                                                                        scales[i][h], args, w);
              a[i][h] = pack_bf16(w[0], w[1]);
              a[i][h + 2] = pack_bf16(w[2], w[3]);
            }
            products(stage, 2 * j + q, a);
          }
        } else {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int i = n / 2, h = n % 2;
            const StagedScale scale(weights.word(stage, r, j, 0, i, h), args.minus_pivots);
#pragma unroll
            for (int q = 0; q < 2; ++q) a[i][h + 2 * q] = restage(codes[i][j][h].quad(q, table), scale);
          }
          products(stage, 2 * r + j, a);
        }
      }
    }
    if constexpr (kBlocks) {
      if (k % 2 == 0 && k + 1 < args.panels) return;
      float rows[2][2] = {{1, 1}, {1, 1}};
      if constexpr (kBlock)
        load_row_scales(reinterpret_cast<const float*>(shared + stage + S::kRowScalesAt) + place.row, rows);
      const float* const scales = reinterpret_cast<const float*>(shared + stage + S::kScalesAt) + place.token;
#pragma unroll
      for (int o = 0; o < kEights; ++o) {
        const float2 token = *reinterpret_cast<const float2*>(scales + 8 * o);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int i = n / 4, e = n % 4;
          float value = lowered(sums[i][o][e]);
          if constexpr (kBlock) value *= rows[i][e / 2];
          totals[i][o][e] = fmaf(value, e % 2 ? token.y : token.x, totals[i][o][e]);
        }
      }
      begin();
    }
  });

  float rows[2][2] = {{1, 1}, {1, 1}};
  if constexpr (!S::kWide && !kBlock) load_row_scales(args.weight_scales + place.tile_row + place.row, rows);
  write_outputs<S>(args, place, [&](int i, int o, float(&values)[4]) {
    float2 token{1, 1};
    if constexpr (S::kDrain == MmaDrain::row)
      token = *reinterpret_cast<const float2*>(args.token_scales + place.tile_token + place.token + 8 * o);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (S::kWide) values[e] = sums[i][o][e];
      if constexpr (kBlock) values[e] = totals[i][o][e];
      if constexpr (kBlocks && !kBlock) values[e] = totals[i][o][e] * rows[i][e / 2];
      if constexpr (S::kDrain == MmaDrain::row)
        values[e] = static_cast<float>(sums[i][o][e]) * (e % 2 ? token.y : token.x) * rows[i][e / 2];
    }
  });
}

}  // namespace octalane::cuda
