// y[tokens, rows] = x W^T with weights of additive codebooks, on wgmma: a weight is rne_bf16(scale * (fp32 sum of
// codewords)), decoded once for all tokens of a tile. See gemm.cuh for the roles and for how stages go round, and
// cuda/additive_args.h for how weights lie.
//
// Codewords come from a table in shared memory that has a copy for every lane that is served at once.
#pragma once

#include "cuda/additive_shapes.h"
#include "cuda/device/codewords.cuh"
#include "cuda/device/gemm.cuh"
#include "cuda/device/wgmma_few.cuh"

namespace octalane::cuda {

/// What a block does: tiles of its own, or (in a cluster of two) half the columns of one tile.
struct Share {
  int rank, first, tiles, step;  ///< tiles: [first, tiles) by step
  int stage, stages;             ///< first stage of the block along K, and how many
  template <class S>
  __device__ __forceinline__ static Share of(const AdditiveArgs& args) {
    Share share;
    share.rank = args.split == 2 ? static_cast<int>(blockIdx.x & 1) : 0;
    share.first = static_cast<int>(blockIdx.x) / args.split;
    share.step = static_cast<int>(gridDim.x) / args.split;
    share.tiles = tiles_of(args, S::kTokens, S::kRows);
    share.stages = args.panels * 2 / args.split;
    share.stage = share.rank * share.stages;
    return share;
  }
};

/// The copying thread.
template <class S>
__device__ __forceinline__ void produce_codebook(const AdditiveArgs& args, uint32_t base) {
  Slot<S::kStages> slot;
  const Share share = Share::of<S>(args);
  const int scale_bytes = args.group == 32 ? 256 : 128, groups = args.panels * kPanelCols / args.group;
  const int bytes = S::kTokens * 128 + S::kWarpgroups * (S::kCodeBytes + scale_bytes);
  for (int tile = share.first; tile < share.tiles; tile += share.step) {
    const TilePlace place(args, tile, S::kTokens, S::kRows);
#pragma unroll 1
    for (int i = 0; i < share.stages; ++i, slot.advance()) {
      const int k = share.stage + i;
      const uint32_t full = base + S::kBarriersAt + slot.index * 16, stage = base + slot.index * S::kStageBytes;
      barrier_wait(full + 8, slot.parity ^ 1);
      barrier_expect(full, bytes);
      copy_tile(stage, args.x, k * 64, place.token, full);
#pragma unroll
      for (int g = 0; g < S::kWarpgroups; ++g) {
        const int64_t block = place.row / 64 + g;
        copy_bytes(stage + S::kCodesAt + g * S::kCodeBytes,
                   args.records + (block * (args.panels * 2) + k) * S::kCodeBytes, S::kCodeBytes, full);
        copy_bytes(stage + S::kScalesAt + g * 256, args.scales + (block * groups + k * 64 / args.group) * 128,
                   scale_bytes, full);
      }
    }
  }
}

/// The other block of the cluster: each gives away the sums of half the tokens and adds those that it gets.
template <class S>
struct Exchange {
  static constexpr int kSums = S::kTokens / 4;  ///< that a thread keeps
  uint32_t ready, sent;                         ///< barriers: the other has no more use for its stages; all has come
  int rank;

  __device__ __forceinline__ Exchange(uint32_t base, int rank_)
      : ready(base + S::kBarriersAt + S::kStages * 16), sent(ready + 8), rank(rank_) {}

  __device__ __forceinline__ void add(uint32_t base, const float (&sums)[S::kTokens / 2],
                                      float (&kept_sums)[kSums]) const {
    const uint32_t region = base + (threadIdx.x / 128) * (kSums * 512) + threadIdx.x % 128 * 16;
    cluster_arrive(ready, rank ^ 1);
    cluster_barrier_wait(ready, 0);
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      float given[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) given[e] = rank == 0 ? sums[kSums + i + e] : sums[i + e];
      cluster_store(region + i * 512, rank ^ 1, given);
    }
    cluster_arrive(sent, rank ^ 1);
    cluster_barrier_wait(sent, 0);
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const uint4 got = shared_128(region + i * 512);
      const uint32_t words[4] = {got.x, got.y, got.z, got.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        kept_sums[i + e] = (rank == 0 ? sums[i + e] : sums[kSums + i + e]) + __uint_as_float(words[e]);
      }
    }
  }
};

/// Writes a warpgroup's 64 rows of `Tokens` tokens.
template <int Tokens, int Tiles>
__device__ __forceinline__ void write_sums(const AdditiveArgs& args, const TilePlace& place, int group, uint32_t tiles,
                                           const float (&sums)[Tokens / 2]) {
  if constexpr (Tokens >= 64) {
    const OutputPlace to{place.token, args.tokens, place.row, place.row};
    write_outputs<Tokens, Tiles>(args, to, group, tiles, [&](int j, float(&values)[4]) {
#pragma unroll
      for (int e = 0; e < 4; ++e) values[e] = sums[4 * j + e];
    });
  } else {
    const int lane = threadIdx.x % 32, row = place.row + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < Tokens / 2; ++i) {
      const int token = place.token + i / 4 * 8 + 2 * (lane % 4) + i % 2, n = row + i % 4 / 2 * 8;
      if (token >= args.tokens || n >= args.rows) continue;
      const int64_t at = token * args.y_stride + n;
      if (args.y_f32 != nullptr)
        args.y_f32[at] = sums[i];
      else
        args.y_bf16[at] = static_cast<uint16_t>(pack_bf16(sums[i], 0.0f));
    }
  }
}

template <class S>
__device__ __forceinline__ void consume_codebook(const AdditiveArgs& args, const uint8_t* shared, uint32_t base) {
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const Share share = Share::of<S>(args);
  const uint8_t* const table = shared + S::kTableAt;
  const uint32_t lanes = lane % (S::kVector == 8 ? 8 : 16) * (S::kVector * 2), identity = identity_of(lane);
  const uint32_t codes_at = kept(S::kCodesAt + group * S::kCodeBytes + thread * S::kThreadBytes);
  const uint32_t scales_at = kept(S::kScalesAt + group * 256 + warp * 32 + lane / 4 * 4);
  const uint32_t scale_step = kept(args.group == 32 ? 128 : 0);
  const auto release = [&](int index) {
    __syncwarp();
    if (lane == 0) barrier_arrive(base + S::kBarriersAt + index * 16 + 8);
  };
  const auto full = [&](int index) { return base + S::kBarriersAt + index * 16; };
  fill_table<S>(args.codebooks, base + S::kTableAt, threadIdx.x);
  asm volatile("bar.sync 1, %0;" ::"n"(S::kWarpgroups * 128) : "memory");
  Slot<S::kStages> slot;
  for (int tile = share.first; tile < share.tiles; tile += share.step) {
    const TilePlace place(args, tile, S::kTokens, S::kRows);
    float sums[S::kTokens / 2];
    int fresh = 1, held = -1;
    uint32_t a[2][2][4];
    Codewords<S> codewords[2];
    uint32_t codes[S::kThreadBytes / 4], scales[2];
    uint32_t stage = base + slot.index * S::kStageBytes;
    const auto load = [&] {
      load_words(stage + codes_at, codes);
      scales[0] = shared_32(stage + scales_at);
      scales[1] = shared_32(stage + scales_at + scale_step);
    };
    const auto issue = [&](uint32_t(&operands)[2][4], uint32_t at, int u) {
      const uint32_t tokens = (at >> 4) + 4 * u;  // 16 bytes a step
      pin_all(operands[0]);
      pin_all(operands[1]);
      wgmma_fence();
      wgmma(Bf16{}, sums, operands[0], descriptor_of(tokens), fresh);
      fresh = 0;
      wgmma(Bf16{}, sums, operands[1], descriptor_of(tokens + 2), 0);
      wgmma_commit();
    };
    // One stage. Its codewords are here; those of the next one take their places as they become operands, so that each
    // has the time of half a stage to arrive.
    const auto step = [&](auto last) {
      const uint32_t current = stage, scale[2] = {scales[0], scales[1]};
      const int index = slot.index;
      slot.advance();
      stage = slot.index == 0 ? base : stage + S::kStageBytes;
      if constexpr (!last.value) {
        barrier_wait(full(slot.index), slot.parity);
        load();
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        codewords[u].operands(scale[u], identity, a[u]);
        if constexpr (!last.value) codewords[u].gather(table, codes, lanes, u);
        issue(a[u], current, u);
        wgmma_wait<1>();
        if (u == 0 && held >= 0) release(held);
      }
      held = index;
    };
    barrier_wait(full(slot.index), slot.parity);
    load();
    codewords[0].gather(table, codes, lanes, 0);
    codewords[1].gather(table, codes, lanes, 1);
#pragma unroll 1
    for (int k = 0; k < share.stages - 1; ++k) step(False{});
    step(True{});
    wgmma_wait<0>();
    pin_all(sums);
    release(held);
    const uint32_t tiles = base + S::kTilesAt + group * S::kTiles * S::kTileBytes;
    if (args.split == 1) {
      write_sums<S::kTokens, S::kTiles>(args, place, group, tiles, sums);
      continue;
    }
    float half[S::kTokens / 4];
    Exchange<S>(base, share.rank).add(base, sums, half);
    TilePlace mine = place;
    mine.token += share.rank * (S::kTokens / 2);
    write_sums<S::kTokens / 2, S::kTiles>(args, mine, group, tiles, half);
  }
  if constexpr (S::kTokens >= 64) stores_done();
}

template <class S>
__device__ __forceinline__ void additive(const AdditiveArgs& args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t base = kept(shared_address(shared));
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(base + S::kBarriersAt + s * 16, 1);
      barrier_init(base + S::kBarriersAt + s * 16 + 8, S::kWarpgroups * 4);
    }
    barrier_init(base + S::kBarriersAt + S::kStages * 16, S::kWarpgroups * 128);
    barrier_init(base + S::kBarriersAt + S::kStages * 16 + 8, S::kWarpgroups * 128);
    barrier_init_fence();
  }
  if (args.split == 2)
    cluster_sync();
  else
    __syncthreads();
  if (threadIdx.x >= S::kWarpgroups * 128) {
    fewer_registers<S::kProducerRegisters>();
    if (threadIdx.x == S::kWarpgroups * 128) produce_codebook<S>(args, base);
  } else {
    more_registers<S::kConsumerRegisters>();
    consume_codebook<S>(args, shared, base);
  }
}

}  // namespace octalane::cuda
