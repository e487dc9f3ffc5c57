// Tiles of the kernels of mma.sync, and the stages of K that their threads copy for each other.
#pragma once

#include "cuda/device/elements.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemm_mma_args.h"
#include "cuda/gemm_mma_shapes.h"

namespace octalane::cuda {

/// The block's tile, tokens fastest so that rows stay in L2; and of it what a thread has: row `row` and those 8, 16 and
/// 24 further, and of each 8 tokens the two from `token` on.
struct MmaPlace {
  int tile_token, tile_row, row, token;

  template <class S>
  __device__ __forceinline__ static MmaPlace of(const GemmMmaArgs& args, S) {
    const int tiles = (args.tokens + S::kTokens - 1) / S::kTokens, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tile = blockIdx.x;
    return {tile % tiles * S::kTokens, tile / tiles * S::kRows, warp % 4 * 32 + lane / 4,
            warp / 4 * S::kWarpTokens + lane % 4 * 2};
  }
};

/// `Rows` rows of `Floats` floats, `pitch` floats apart, one after another.
template <class S, int Rows, int Floats>
__device__ __forceinline__ void copy_rows(uint32_t to, const float* from, int64_t pitch) {
  constexpr int kChunks = Floats / 4;
#pragma unroll
  for (int i = 0; i < Rows * kChunks; i += S::kThreads) {
    const int chunk = i + static_cast<int>(threadIdx.x), row = chunk / kChunks;
    if (chunk < Rows * kChunks) copy_16(to + chunk * 16, from + row * pitch + chunk % kChunks * 4);
  }
}

/// What a thread copies of stages.
template <class S>
struct StageCopies {
  const uint8_t *x, *records;
  int rows;  ///< of tokens that there are

  __device__ __forceinline__ StageCopies(const GemmMmaArgs& args, const MmaPlace& place) {
    // Of tokens eight threads have a row; each half of the threads has the records of 64 rows.
    const int thread = threadIdx.x, half = thread / (S::kThreads / 2);
    const int token = place.tile_token + thread / 8, last = args.tokens - 1;
    x = args.x + static_cast<int64_t>(min(token, last)) * row_bytes(args) + thread % 8 * 16;
    rows = last - token;
    const int64_t block = place.tile_row / 64 + half;
    records = args.records + block * args.panels * 2 * args.record_bytes + thread % (S::kThreads / 2) * 16;
  }
  __device__ __forceinline__ static int row_bytes(const GemmMmaArgs& args) {
    return args.panels * (S::kWide ? 256 : 128);
  }

  /// Begins to copy stage k.
  __device__ __forceinline__ void copy(const GemmMmaArgs& args, const MmaPlace& place, int k, uint32_t to) const {
    const int thread = threadIdx.x, token = thread / 8;
    const uint8_t* from = x + static_cast<int64_t>(k) * 128;
    pin(from);  // addresses are made one of another, every time: no registers keep them
    const uint32_t x_to = to + token * 128 + ((thread % 8) ^ (token % 8)) * 16;
    constexpr int kStep = S::kThreads / 8;
#pragma unroll
    for (int i = 0; i < S::kTokens; i += kStep) {
      copy_16(x_to + i * 128, from);
      // Behind the last token comes an earlier one again: no one reads its results.
      if (i + kStep <= rows) from += static_cast<int64_t>(kStep) * row_bytes(args);
    }
    const int half = thread / (S::kThreads / 2), bytes = S::kRecords * args.record_bytes;
    from = records + static_cast<int64_t>(k) * bytes;
    pin(from);
    const int first = thread % (S::kThreads / 2) * 16;
    const uint32_t records_to = to + S::kRecordsAt + half * S::kBlockBytes + first;
#pragma unroll
    for (int i = 0; i < S::kBlockBytes; i += S::kThreads / 2 * 16) {
      if (first + i < bytes) copy_16(records_to + i, from + i);
    }
    copy_scales(args, place, k, to);
  }

 private:
  __device__ __forceinline__ static void copy_scales(const GemmMmaArgs& args, const MmaPlace& place, int k,
                                                     uint32_t to) {
    const int thread = threadIdx.x;
    if constexpr (S::kForm == Form::nested) {
      const int64_t super =
          (place.tile_row / 64 + thread / 16) * static_cast<int64_t>((args.panels + 1) / 2) + k / (S::kWide ? 4 : 2);
      if (thread < 32) copy_16(to + S::kSupersAt + thread * 16, args.supers + super * 64 + thread % 16 * 4);
    }
    if constexpr (S::kDrain == MmaDrain::group) {
      const int64_t from = static_cast<int64_t>(k) * S::kGroups * args.padded_tokens + place.tile_token;
      copy_rows<S, S::kGroups, S::kTokens>(to + S::kScalesAt, args.token_scales + from, args.padded_tokens);
      if constexpr (S::kBias)
        copy_rows<S, S::kGroups, S::kTokens>(to + S::kSumsAt, args.token_sums + from, args.padded_tokens);
    }
    if constexpr (S::kLasting) {
      const int64_t from = static_cast<int64_t>(k / 2) * args.padded_tokens + place.tile_token;
      copy_rows<S, 1, S::kTokens>(to + S::kScalesAt, args.token_scales + from, 0);
      if constexpr (S::kDrain == MmaDrain::nested) {
        static_assert(S::kSumBytes == S::kThreads * 16);
        copy_16(to + S::kSumsAt + thread * 16, args.token_minima + from * 16 + thread * 8);
      } else if constexpr (S::kDrain == MmaDrain::block) {
        copy_rows<S, 1, S::kRows>(to + S::kRowScalesAt,
                                  args.weight_scales + static_cast<int64_t>(k / 2) * args.padded_rows + place.tile_row,
                                  0);
      }
    }
  }
};

/// multiply(stage, k) for every stage, whose bytes begin at `stage` of the block's memory.
template <class S, class Multiply>
__device__ __forceinline__ void run_stages(const GemmMmaArgs& args, const MmaPlace& place, uint32_t base,
                                           Multiply multiply) {
  const int stages = args.panels * (S::kWide ? 2 : 1);
  const StageCopies<S> copies(args, place);
#pragma unroll 1
  for (int k = 0; k < S::kStages - 1; ++k) {
    if (k < stages) copies.copy(args, place, k, base + k * S::kStageBytes);
    copies_commit();
  }
  int stage = 0, next = (S::kStages - 1) * S::kStageBytes;
#pragma unroll 1
  for (int k = 0; k < stages; ++k) {
    copies_wait<S::kStages - 2>();
    __syncthreads();  // the stage is there for all threads, and the one before is read by all
    if (k + S::kStages - 1 < stages) copies.copy(args, place, k + S::kStages - 1, base + next);
    copies_commit();
    multiply(stage, k);
    next = stage;
    stage = stage == (S::kStages - 1) * S::kStageBytes ? 0 : stage + S::kStageBytes;
  }
}

}  // namespace octalane::cuda
