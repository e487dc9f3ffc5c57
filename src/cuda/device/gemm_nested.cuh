// s8.nested on wgmma: the sums of a group of 32 columns are multiplied by its integer sub-scale and added up as
// integers; they leave the integers once in 256 columns. The minima, sub-minimum by sum of codes, are a product of
// their own of eight columns, exact on the bfloat16 lane: sums are handed in as a multiple of 32 and a rest. See
// gemm.cuh for what is not explained here.
#pragma once

#include "cuda/device/gemm.cuh"

namespace octalane::cuda {

template <class S>
__device__ __forceinline__ void produce_nested(const GemmArgs& args, uint32_t base) {
  produce<S>(args, base, [&](const TilePlace& place, int k, uint32_t stage, uint32_t full) {
    const int64_t from = static_cast<int64_t>(k / 2) * args.padded_tokens + place.token;
    copy_bytes(stage + S::kScalesAt, args.token_scales + from, S::kTokens * 4, full);
    if constexpr (S::kMinima) copy_bytes(stage + S::kMinimaAt, args.token_minima + from * 16, S::kMinimaBytes, full);
  });
}

/// The sub-minima of groups 2c and 2c + 1 of a block, for one row, as bfloat16: `words` are those groups' scale words.
__device__ __forceinline__ uint32_t minima_pair(uint32_t words) {
  uint32_t pair;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(permute(words, 0x43, 0x4341)), "r"(0x43004300u));
  return pair;
}

template <class S>
__device__ __forceinline__ void consume_nested(const GemmArgs& args, uint8_t* shared, uint32_t base) {
  constexpr int kSums = S::kTokens / 2;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int row = warp * 16 + lane / 4;
  const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
  const uint32_t offset = (128 - args.zero) * 0x01010101u;
  const uint32_t records = kept(S::kRecordsAt + group * 2 * S::kRecordBytes), words = records + S::kCodeBytes + row * 4;
  Slot<S::kStages> slot;
  for (int tile = blockIdx.x; tile < tiles_of<S>(args); tile += gridDim.x) {
    float totals[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] = 0;
#pragma unroll 1
    for (int k = 0; k < args.panels; k += 2) {
      int products[kSums];
      uint32_t minima[2] = {0, 0};
      const auto stage = [&](auto second) {  // of the block
        const uint32_t at = base + slot.index * S::kStageBytes;
        barrier_wait(base + S::kBarriersAt + slot.index * 16, slot.parity);
        Eight<S::kCode> codes[2][2][2];
        uint32_t pairs[2][2];  // [record][h]: scale words of its two groups
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          load_codes(at + records + r * S::kRecordBytes + thread * 16, codes[r]);
#pragma unroll
          for (int h = 0; h < 2; ++h) pairs[r][h] = shared_32(at + words + r * S::kRecordBytes + h * 32);
        }
        if (lane % 4 / 2 == second.value) {
#pragma unroll
          for (int h = 0; h < 2; ++h) minima[h] = lane % 2 == 0 ? pairs[0][h] : pairs[1][h];
        }
        uint32_t a[2][4];
        const auto decode = [&](int g) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int q = 0; q < 2; ++q) a[g % 2][h + 2 * q] = as_signed(codes[g / 2][g % 2][h].quad(q, table), offset);
          }
        };
        decode(0);
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          int sums[kSums];
          pin_all(a[g % 2]);
          wgmma_fence();
          wgmma(S8{}, sums, a[g % 2], descriptor_of((at >> 4) + 2 * g), 1);
          wgmma_commit();
          if (g < 3) decode(g + 1);
          int scales[2];
#pragma unroll
          for (int h = 0; h < 2; ++h)
            scales[h] = static_cast<int>(permute(pairs[g / 2][h], 0, g % 2 == 0 ? 0x8880 : 0xaaa2));
          wgmma_wait<0>();
          pin_all(sums);
#pragma unroll
          for (int i = 0; i < kSums; ++i) {
            const int product = sums[i] * scales[i / 2 % 2];
            products[i] = second.value == 0 && g == 0 ? product : products[i] + product;
          }
        }
      };
      const auto release = [&] {
        __syncwarp();  // every warp for itself
        if (lane == 0) barrier_arrive(base + S::kBarriersAt + slot.index * 16 + 8);
        slot.advance();
      };
      stage(False{});
      if (k + 1 < args.panels) {
        release();
        stage(True{});
      }
      const uint32_t at = base + slot.index * S::kStageBytes;
      float least[kSums];
      if constexpr (S::kMinima) {
        uint32_t a[4] = {minima_pair(minima[0]), minima_pair(minima[1]), 0, 0};
        a[2] = a[0], a[3] = a[1];
        pin_all(a);
        wgmma_fence();
        wgmma(Bf16{}, least, a, plain_descriptor(at + S::kMinimaAt), 1);
        wgmma_commit();
        wgmma_wait<0>();
        pin_all(least);
      }
      const auto* scales = reinterpret_cast<const float*>(shared + slot.index * S::kStageBytes + S::kScalesAt);
      float scale[2], bias[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t super = shared_32(at + S::kSupersAt + group * 256 + (row + h * 8) * 4);
        scale[h] = widen(super, false), bias[h] = -widen(super >> 16, false);
      }
#pragma unroll
      for (int j = 0; j < S::kTokens / 8; ++j) {
        const float2 token = *reinterpret_cast<const float2*>(scales + 8 * j + 2 * (lane % 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float t = scale[e / 2] * static_cast<float>(products[4 * j + e]);
          if constexpr (S::kMinima) t = fmaf(bias[e / 2], least[4 * j + e], t);
          totals[4 * j + e] = fmaf(e % 2 ? token.y : token.x, t, totals[4 * j + e]);
        }
      }
      release();
    }
    write_totals<S>(args, output_of<S>(args, tile), group, base, totals);
  }
  stores_done();
}

template <class S>
__device__ __forceinline__ void gemm_nested(const GemmArgs& args) {
  run_roles<S>(
      args, [&](uint32_t base) { produce_nested<S>(args, base); },
      [&](uint8_t* shared, uint32_t base) { consume_nested<S>(args, shared, base); });
}

}  // namespace octalane::cuda
