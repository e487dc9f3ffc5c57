// s8.group and s8.nested on mma.sync. See gemm_mma.cuh for what is not explained here, gemm_group.cuh and
// gemm_nested.cuh for the lanes.
#pragma once

#include "cuda/device/gemm_mma.cuh"

namespace octalane::cuda {

/// s8.group: the sums of a group live for 16 tokens at a time only, as its left operands are all there before.
template <class S>
__device__ __forceinline__ void multiply_groups(const GemmMmaArgs& args, const MmaPlace& place, uint8_t* shared) {
  constexpr int kEights = S::kWarpTokens / 8, kSteps = S::kGroup / 32;
  constexpr int kRecords = S::kGroup > kRecordCols ? 2 : 1, kGroups = S::kGroup < kRecordCols ? 2 : 1;  // at once
  const uint32_t base = shared_address(shared);
  const MmaWeights<S> weights(args, place, base);
  const MmaTokens<S> tokens(place, base);
  const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
  const uint32_t offset = (128 - args.zero) * 0x01010101u;
  float totals[2][kEights][4];
#pragma unroll
  for (int n = 0; n < 8 * kEights; ++n) totals[n / 4 / kEights][n / 4 % kEights][n % 4] = 0;

  const auto drain = [&](int stage, int g, int o, const Scale(&rows)[2][2], const int(&sums)[2][4]) {
    const float* const at =
        reinterpret_cast<const float*>(shared + stage + S::kScalesAt) + g * S::kTokens + place.token + 8 * o;
    const float2 scales = *reinterpret_cast<const float2*>(at);
    float2 codes{};
    if constexpr (S::kBias) codes = *reinterpret_cast<const float2*>(at + S::kGroups * S::kTokens);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int i = n / 4, e = n % 4;
      const Scale& row = rows[i][e / 2];
      const float t = S::kBias ? fmaf(row.scale, lowered(sums[i][e]), row.bias * (e % 2 ? codes.y : codes.x))
                               : lowered(sums[i][e], row.scale);
      totals[i][o][e] = fmaf(e % 2 ? scales.y : scales.x, t, totals[i][o][e]);
    }
  };
  run_stages<S>(args, place, base, [&](int stage, int) {
  // A record after the other, so that registers suffice.
#pragma unroll 1
    for (int r = 0; r < 2; r += kRecords) {
      Eight<S::kCode> codes[kRecords][2][2][2];  // [record][i][j][h]
#pragma unroll
      for (int n = 0; n < kRecords; ++n) weights.load(stage, r + n, codes[n]);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        uint32_t a[kSteps][2][4];
        Scale rows[2][2];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int i = n / 2, h = n % 2;
          rows[i][h] = exact_scale<S::kForm>(weights.word(stage, r, g, 0, i, h), args.bf16_scales != 0,
                                             weights.super(stage, i, h));
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
            const int step = g * kSteps + s;
#pragma unroll
            for (int q = 0; q < 2; ++q)
              a[s][i][h + 2 * q] = as_signed(codes[step / 2][i][step % 2][h].quad(q, table), offset);
          }
        }
#pragma unroll
        for (int p = 0; p < kEights / 2; ++p) {
          if constexpr (kSteps == 1) __syncwarp();  // the assembler hoists no further tokens: registers suffice
          int sums[2][2][4];                        // [eight][i]
#pragma unroll
          for (int s = 0; s < kSteps; ++s) {
            uint32_t b[4];
            tokens.load(stage, 2 * r + g * kSteps + s, p, b);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
              const int i = n % 2, o = n / 2;
              if (s == 0)
                mma_s8_from(kLifted, sums[o][i], a[s][i], b[2 * o], b[2 * o + 1]);
              else
                mma_s8(sums[o][i], a[s][i], b[2 * o], b[2 * o + 1]);
            }
          }
          drain(stage, r * kGroups / kRecords + g, 2 * p, rows, sums[0]);
          drain(stage, r * kGroups / kRecords + g, 2 * p + 1, rows, sums[1]);
        }
      }
    }
  });
  write_outputs<S>(args, place, [&](int i, int o, float(&values)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] = totals[i][o][e];
  });
}

/// The sub-minima, 0 to 127, of a record's two groups, for one row, as bfloat16: 128 and they, less 128.
__device__ __forceinline__ uint32_t minima_of(uint32_t words) {
  return fma_bf16(permute(words, 0x43, 0x4341), 0x3f803f80, 0xc300c300);
}

/// s8.nested, of weights with minima.
template <class S>
__device__ __forceinline__ void multiply_nested(const GemmMmaArgs& args, const MmaPlace& place, uint8_t* shared) {
  constexpr int kEights = S::kWarpTokens / 8;
  const uint32_t base = shared_address(shared);
  const MmaWeights<S> weights(args, place, base);
  const MmaTokens<S> tokens(place, base);
  const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
  const uint32_t offset = (128 - args.zero) * 0x01010101u;
  const int lane = threadIdx.x % 32;
  // The sums of 8 tokens' codes are a matrix, their rests the next.
  const uint32_t minima_at = base + S::kSumsAt + (place.token - lane % 4 * 2) * 32 + lane * 16;
  float totals[2][kEights][4];
  int products[2][kEights][4];
  uint32_t minima[2][2] = {};  // [i][h]: scale words of groups 2 (lane % 4) on
#pragma unroll
  for (int n = 0; n < 8 * kEights; ++n) {
    totals[n / 4 / kEights][n / 4 % kEights][n % 4] = 0;
    products[n / 4 / kEights][n / 4 % kEights][n % 4] = 0;
  }

  run_stages<S>(args, place, base, [&](int stage, int k) {
#pragma unroll 1
    for (int r = 0; r < 2; ++r) {
      Eight<S::kCode> codes[2][2][2];
      weights.load(stage, r, codes);
      uint32_t pairs[2][2];  // [i][h]: scale words of the record's two groups
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        pairs[n / 2][n % 2] = shared_32(weights.words + stage + r * S::kRecordBytes + n * 8 * 4);
        if (lane % 4 == k % 2 * 2 + r) minima[n / 2][n % 2] = pairs[n / 2][n % 2];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t a[2][4];
        int scales[2][2];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int i = n / 2, h = n % 2;
          scales[i][h] = static_cast<int>(permute(pairs[i][h], 0, j == 0 ? 0x8880 : 0xaaa2));
#pragma unroll
          for (int q = 0; q < 2; ++q) a[i][h + 2 * q] = as_signed(codes[i][j][h].quad(q, table), offset);
        }
#pragma unroll
        for (int p = 0; p < kEights / 2; ++p) {
          __syncwarp();  // likewise
          uint32_t b[4];
          tokens.load(stage, 2 * r + j, p, b);
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int i = n % 2, o = n / 2;
            int sums[4];
            mma_s8_from(0, sums, a[i], b[2 * o], b[2 * o + 1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) products[i][2 * p + o][e] += sums[e] * scales[i][e / 2];
          }
        }
      }
    }
    if (k % 2 == 0 && k + 1 < args.panels) return;
    uint32_t a[2][4];
    Scale rows[2][2];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = n / 2, h = n % 2;
      a[i][h] = a[i][h + 2] = minima_of(minima[i][h]);
      rows[i][h] = weights.super(stage, i, h);
      minima[i][h] = 0;
    }
    const float* const scales = reinterpret_cast<const float*>(shared + stage + S::kScalesAt) + place.token;
#pragma unroll
    for (int p = 0; p < kEights / 2; ++p) {
      uint32_t b[4];
      load_matrices(minima_at + stage + p * 512, b);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int i = n % 2, o = 2 * p + n / 2;
        const float2 token = *reinterpret_cast<const float2*>(scales + 8 * o);
        float least[4];
        mma_bf16(least, a[i], b[n / 2 * 2], b[n / 2 * 2 + 1], true);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t =
              fmaf(-rows[i][e / 2].bias, least[e], rows[i][e / 2].scale * static_cast<float>(products[i][o][e]));
          totals[i][o][e] = fmaf(e % 2 ? token.y : token.x, t, totals[i][o][e]);
          products[i][o][e] = 0;
        }
      }
    }
  });
  write_outputs<S>(args, place, [&](int i, int o, float(&values)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] = totals[i][o][e];
  });
}

}  // namespace octalane::cuda
