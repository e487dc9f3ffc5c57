// s8.group and f8.group on wgmma: codes as they are (levels of E2M1 as E4M3), sums drained into fp32 totals every group
// of K. Two sets of sums in turns where registers allow it: one is drained while the tensor cores fill the other. See
// gemm.cuh for the rest.
#pragma once

#include "cuda/device/gemm.cuh"

namespace octalane::cuda {

template <class S>
__device__ __forceinline__ void produce_groups(const GemmArgs& args, uint32_t base) {
  produce<S>(args, base, [&](const TilePlace& place, int k, uint32_t stage, uint32_t full) {
#pragma unroll
    for (int g = 0; g < (S::kE4m3 ? 0 : S::kGroups); ++g) {
      const int64_t from = static_cast<int64_t>(k * S::kGroups + g) * args.padded_tokens + place.token;
      const uint32_t to = stage + S::kScalesAt + g * S::kTokens * 4;
      copy_bytes(to, args.token_scales + from, S::kTokens * 4, full);
      if constexpr (S::kBias)
        copy_bytes(to + S::kGroups * S::kTokens * 4, args.token_sums + from, S::kTokens * 4, full);
    }
  });
}

/// Adds a group's sums to the totals: the scales of the thread's two rows, and of its tokens from `tokens` on.
template <class S, class Sum>
__device__ __forceinline__ void drain_group(const Scale (&rows)[2], const float* tokens, Sum (&sums)[S::kTokens / 2],
                                            float (&totals)[S::kTokens / 2]) {
  pin_all(sums);
  if constexpr (S::kE4m3) {
#pragma unroll
    for (int i = 0; i < S::kTokens / 2; ++i) totals[i] = fmaf(sums[i], rows[i / 2 % 2].scale, totals[i]);
  } else {
#pragma unroll
    for (int j = 0; j < S::kTokens / 8; ++j) {
      const float* at = tokens + 8 * j;
      const float2 scales = *reinterpret_cast<const float2*>(at);
      float2 codes{};
      if constexpr (S::kBias) codes = *reinterpret_cast<const float2*>(at + S::kGroups * S::kTokens);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Scale& row = rows[e / 2];
        const auto dot = static_cast<float>(sums[4 * j + e]);
        const float t = S::kBias ? fmaf(row.scale, dot, row.bias * (e % 2 ? codes.y : codes.x)) : row.scale * dot;
        totals[4 * j + e] = fmaf(e % 2 ? scales.y : scales.x, t, totals[4 * j + e]);
      }
    }
  }
}

template <class S>
__device__ __forceinline__ void consume_groups(const GemmArgs& args, uint8_t* shared, uint32_t base) {
  using Type = typename OperandType<S::kOperand>::Type;
  constexpr int kSums = S::kTokens / 2;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int row = warp * 16 + lane / 4;
  constexpr int kWordBytes = word_bytes(S::kForm);
  const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
  const uint32_t offset = (128 - args.zero) * 0x01010101u;
  Slot<S::kStages> slot;
  for (int tile = blockIdx.x; tile < tiles_of<S>(args); tile += gridDim.x) {
    typename Type::Sum sums[S::kSets][kSums];
    float totals[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] = 0;
#pragma unroll 1
    for (int k = 0; k < args.panels; ++k, slot.advance()) {
      const uint32_t stage = base + slot.index * S::kStageBytes;
      barrier_wait(base + S::kBarriersAt + slot.index * 16, slot.parity);
      const uint32_t records = stage + S::kRecordsAt + group * 2 * S::kRecordBytes;
      Eight<S::kCode> codes[2][2][2];
#pragma unroll
      for (int r = 0; r < 2; ++r) load_codes(records + r * S::kRecordBytes + thread * 16, codes[r]);
      uint32_t a[S::kSets][S::kSteps][4];
      const auto issue = [&](int g) {
        const int set = g % S::kSets;
#pragma unroll
        for (int i = 0; i < S::kSteps; ++i) {
          const int step = g * S::kSteps + i;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int q = 0; q < 2; ++q) {
              const uint32_t quad = codes[step / 2][step % 2][h].quad(q, table);
              a[set][i][h + 2 * q] = S::kE4m3 ? quad : as_signed(quad, offset);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < S::kSteps; ++i) pin_all(a[set][i]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::kSteps; ++i) {
          wgmma(Type{}, sums[set], a[set][i], descriptor_of((stage >> 4) + 2 * (g * S::kSteps + i)), i == 0);
        }
        wgmma_commit();
      };
      const auto drain = [&](int g) {
        const int step = g * S::kSteps;
        Scale scales[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t at = records + step / 2 * S::kRecordBytes + S::kCodeBytes +
                              ((row + h * 8) * S::kWords + (S::kWords == 2 ? step % 2 : 0)) * kWordBytes;
          const uint32_t word = kWordBytes == 4 ? shared_32(at) : shared_16(at);
          Scale super{};
          if constexpr (S::kForm == Form::nested)
            super = super_scale(shared_32(stage + S::kSupersAt + group * 256 + (row + h * 8) * 4));
          scales[h] = exact_scale<S::kForm>(word, args.bf16_scales != 0, super);
        }
        const auto* tokens = reinterpret_cast<const float*>(shared + (stage - base) + S::kScalesAt);
        drain_group<S>(scales, tokens + g * S::kTokens + 2 * (lane % 4), sums[g % S::kSets], totals);
      };
      issue(0);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g) {
        if (g + 1 < S::kGroups) {
          issue(g + 1);
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        drain(g);
      }
      __syncwarp();  // every warp frees the stage for itself
      if (lane == 0) barrier_arrive(base + S::kBarriersAt + slot.index * 16 + 8);
    }
    const OutputPlace out = output_of<S>(args, tile);
    if constexpr (S::kE4m3) {
      const float* const scales = args.token_scales + out.token + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] *= scales[i / 4 * 8 + i % 2];
    }
    write_totals<S>(args, out, group, base, totals);
  }
  stores_done();
}

template <class S>
__device__ __forceinline__ void gemm_groups(const GemmArgs& args) {
  run_roles<S>(
      args, [&](uint32_t base) { produce_groups<S>(args, base); },
      [&](uint8_t* shared, uint32_t base) { consume_groups<S>(args, shared, base); });
}

}  // namespace octalane::cuda
