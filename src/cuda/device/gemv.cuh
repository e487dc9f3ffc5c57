// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming; so each warp is on its own: 16 rows of a slice of the columns, whose codes and scales go from memory to
// registers, 16 bytes a thread and load, up to eight records ahead (GemvShape::kDepth) and the first of them before the
// tokens are waited for. A ring in shared memory would hold no more: a warp's share of it is what its registers hold,
// and filling, waiting and reading back would take instructions and a bandwidth that decoding and the tokens need.
//
// Levels are the left operand of mma.sync, as exact integers in bfloat16; tokens the eight columns of the right one.
// The sum of a scale group is multiplied by the group's scale in fp32, and a bias by the sum of the group's
// activations, which a block adds up as it stages the tokens; no weight is rounded. Every sum's order depends on K
// alone: within a group that of the instruction, then groups, then slices, one after another.
#pragma once

#include "cuda/device/gemv_weights.cuh"

namespace octalane::cuda {

/// The block's columns of all tokens, and their sums by group in fp32. Of each 32 columns thread c of a quad has 16
/// bytes: the columns that it has of codes, in the order in which Levels has them.
template <class S>
__device__ __forceinline__ void stage_tokens(const GemvArgs& args, const GemvShared& at, uint8_t* shared, int first,
                                             int records) {
  const int units = records * 4;  // of a token, 16 columns each
#pragma unroll 1
  for (int base = 0; base < units * args.tokens; base += kGemvThreads) {
    const int token = (base + static_cast<int>(threadIdx.x)) / units;
    const int unit = base + static_cast<int>(threadIdx.x) - token * units;
    const bool inside = token < args.tokens;
    uint4 v[2] = {};  // of each quad of columns the first two, the last two
    if (inside) {
      const auto* from =
          reinterpret_cast<const uint4*>(args.x + token * args.x_stride + first * kRecordCols + unit * 16);
      v[0] = from[0], v[1] = from[1];
    }
    const uint32_t words[2][4] = {{v[0].x, v[0].y, v[0].z, v[0].w}, {v[1].x, v[1].y, v[1].z, v[1].w}};
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint2 quad{words[0][c], words[1][c]};
      if constexpr (S::kCode != Code::table)
        quad = {permute(words[0][c], words[1][c], 0x5410), permute(words[0][c], words[1][c], 0x7632)};
      if (inside)
        *reinterpret_cast<uint2*>(shared + at.tokens + token * at.token_bytes + unit / 2 * 64 + c * 16 + unit % 2 * 8) =
            quad;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sum += __uint_as_float(words[i][c] << 16) + __uint_as_float(words[i][c] & 0xffff0000u);
    }
    if constexpr (has_bias(S::kKind)) {
      // Neighbours have the rest of the group: a record's four units lie in four lanes.
#pragma unroll
      for (int lanes = 1; lanes < S::kGroup / 16; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      if (inside && unit % (S::kGroup / 16) == 0)
        reinterpret_cast<float*>(shared + at.sums)[unit / (S::kGroup / 16) * S::kTiles * 8 + token] = sum;
    }
  }
}

/// A record's part of 16 rows by all tokens. `tokens` and `sums` are this thread's, of the record; a thread's totals
/// are rows r and r + 8 (e / 2) of two tokens (e % 2).
template <class S>
__device__ __forceinline__ void multiply(const GemvRecord<S>& record, const Levels<S::kCode>& levels,
                                         const uint8_t* tokens, int tile_bytes, const float* sums,
                                         float (&totals)[S::kTiles][4]) {
  float group[S::kTiles][4];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint4 b[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) b[t] = *reinterpret_cast<const uint4*>(tokens + t * tile_bytes + j * 64);
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      uint32_t a[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t* codes =
            S::kCode == Code::byte ? record.codes[j % (S::kCodeWords / 4)] + h * 2 : record.codes[0] + j * 2 + h;
        levels.quad(codes, q, a[h], a[h + 2]);
      }
      constexpr int kQuads = 4 / S::kWords;  // of a group
      const int quad = 2 * j + q;
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
        mma_bf16(group[t], a, q == 0 ? b[t].x : b[t].z, q == 0 ? b[t].y : b[t].w, quad % kQuads == 0);
      if (quad % kQuads != kQuads - 1) continue;
      const int word = quad / kQuads;
      const Scale scale[2] = {record.scale(0, word), record.scale(1, word)};
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        float2 sum{0, 0};
        if constexpr (has_bias(S::kKind)) sum = *reinterpret_cast<const float2*>(sums + word * S::kTiles * 8 + t * 8);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals[t][e] = fmaf(scale[e / 2].scale, group[t][e], totals[t][e]);
          if constexpr (has_bias(S::kKind))
            totals[t][e] = fmaf(scale[e / 2].bias, e % 2 == 0 ? sum.x : sum.y, totals[t][e]);
        }
      }
    }
  }
}

/// Adds the slices up, in their order: in shared memory of the cluster, each block a part of the rows; or leaves them
/// to gemv_sum.
template <int Tiles>
__device__ __forceinline__ void add_slices(const GemvArgs& args, const GemvShared& at, uint8_t* shared,
                                           const float (&totals)[Tiles][4]) {
  const int lane = threadIdx.x % 32, slice = blockIdx.x;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4, first = static_cast<int>(blockIdx.y) * kGemvRows;
  auto* partials = reinterpret_cast<float*>(shared + at.partials);
#pragma unroll
  for (int t = 0; t < Tiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = t * 8 + lane % 4 * 2 + e % 2, n = row + e / 2 * 8;
      if (args.partials == nullptr)
        partials[token * kGemvPartialRow + n] = totals[t][e];
      else if (token < args.tokens)
        args.partials[(static_cast<int64_t>(slice) * args.tokens + token) * args.padded_rows + first + n] =
            totals[t][e];
    }
  }
  if (args.partials != nullptr) return;
#if __CUDA_ARCH__ >= 900
  const int slices = gridDim.x, rows = kGemvRows / slices;
  cluster_sync();
  for (int i = threadIdx.x; i < rows * args.tokens; i += kGemvThreads) {
    const int token = i / rows, n = slice * rows + i % rows;
    const uint32_t from = shared_address(partials + token * kGemvPartialRow + n);
    float part[kGemvSlices];
#pragma unroll
    for (int s = 0; s < kGemvSlices; ++s) part[s] = s < slices ? cluster_f32(from, s) : 0.0f;
    float sum = part[0];
#pragma unroll
    for (int s = 1; s < kGemvSlices; ++s) {
      if (s < slices) sum += part[s];
    }
    if (first + n < args.rows) args.y[token * args.y_stride + first + n] = sum;
  }
  cluster_sync();  // no block's memory goes while others read it
#endif
}

template <class S>
__device__ __forceinline__ void gemv(const GemvArgs& args, uint8_t* shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  const int begin = gemv_first_record(args.panels, blockIdx.x, args.slices);
  const int records = gemv_first_record(args.panels, blockIdx.x + 1, args.slices) - begin;
  const int64_t block = int64_t{blockIdx.y} * 2 + warp / 4;  // of 64 rows
  const uint8_t* const record = args.records + (block * args.panels * 2 + begin) * args.record_bytes;
  const uint8_t* codes_at = record + (warp % 4 * 32 + lane) * 16;
  const uint8_t* words_at =
      record + kRecordRows * kRecordCols * code_bits(S::kCode) / 8 + (warp % 4 * 16 + g) * S::kRowBytes;
  const uint32_t* const supers_at = args.supers + block * ((args.panels + 1) / 2) * 64 + warp % 4 * 16 + g;
  GemvRecord<S> held[S::kDepth];
  int ahead = 0;  // records whose loads have begun
  const auto load = [&](GemvRecord<S>& to) {
    to.load(codes_at, words_at, supers_at + (begin + ahead) / 4 * 64);
    codes_at += args.record_bytes, words_at += args.record_bytes, ++ahead;
  };
#pragma unroll
  for (int i = 0; i < S::kDepth; ++i) {
    if (i < records) load(held[i]);
  }
  // Weights are constant; only what follows depends on the kernel before.
  let_next_begin();
  const GemvShared at =
      gemv_shared(args.panels, args.slices, args.tokens, S::kTiles * 8, S::kGroup, S::kCode == Code::table);
  if constexpr (S::kCode == Code::table) fill_table(args, shared);
  wait_for_previous();
  stage_tokens<S>(args, at, shared, begin, records);
  __syncthreads();

  const Levels<S::kCode> levels(args, shared);
  // The results of tokens that there are not are not used: whatever their operands are.
  const uint8_t* tokens = shared + at.tokens + min(g, args.tokens - 1) * at.token_bytes + c * 16;
  const float* sums = reinterpret_cast<const float*>(shared + at.sums) + c * 2;
  float totals[S::kTiles][4] = {};
#pragma unroll 1
  for (int k = 0; k < records; k += S::kDepth) {
#pragma unroll
    for (int i = 0; i < S::kDepth; ++i) {
      if (k + i >= records) break;
      multiply(held[i], levels, tokens, at.token_bytes * 8, sums, totals);
      if (ahead < records) load(held[i]);
      tokens += kRecordCols * 2;
      sums += S::kWords * S::kTiles * 8;
    }
  }
  add_slices<S::kTiles>(args, at, shared, totals);
}

template <Code kCode, int Words, int Tiles, int Held>
__device__ __forceinline__ void gemv(const GemvArgs& args) {
  extern __shared__ __align__(16) uint8_t shared[];
  switch (static_cast<ScaleWords>(args.scale_words)) {
    case ScaleWords::pair_f16: return gemv<GemvShape<kCode, ScaleWords::pair_f16, Words, Tiles, Held>>(args, shared);
    case ScaleWords::pair_bf16: return gemv<GemvShape<kCode, ScaleWords::pair_bf16, Words, Tiles, Held>>(args, shared);
    case ScaleWords::single_f16:
      return gemv<GemvShape<kCode, ScaleWords::single_f16, Words, Tiles, Held>>(args, shared);
    case ScaleWords::single_bf16:
      return gemv<GemvShape<kCode, ScaleWords::single_bf16, Words, Tiles, Held>>(args, shared);
    case ScaleWords::nested:  // groups of 16 or 32
      if constexpr (Words > 1) gemv<GemvShape<kCode, ScaleWords::nested, Words, Tiles, Held>>(args, shared);
      return;
    default: return;
  }
}

}  // namespace octalane::cuda
