// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming, and to all multiprocessors alike. So there is a block for each of them, with its share of the rows, and its
// warps share the columns; each warp is on its own: it copies what it multiplies to its own slots in shared memory,
// some units of 256 columns by 16 rows ahead (gemv_units), and the first of them before the tokens are waited for.
//
// Codes are the left operand of mma.sync, as exact integers in binary16; tokens the eight columns of the right one, as
// stage_f16 left them: exact but for values 2^28 times smaller than a token's largest. The sum of a scale group is
// multiplied by the group's scale in fp32, and bias and zero by the sum of the group's activations; no weight is
// rounded. Every sum's order depends on K and the kernel alone.
#pragma once

#include "cuda/device/gemv_weights.cuh"

namespace octalane::cuda {

/// The block's columns of all tokens, and their sums; all threads wait for them.
template <class S>
__device__ __forceinline__ void copy_tokens(const GemvArgs& args, const GemvShared& at, uint8_t* shared, int begin,
                                            int end) {
  const int cols = gemv_cols(args.panels), first = begin * kGemvStep, records = (end - begin) * kGemvStep;
  const auto* x = reinterpret_cast<const uint8_t*>(args.x + first * kRecordCols);
  const auto* sums = reinterpret_cast<const uint8_t*>(args.x_sums + first * S::kWords);
  const int x_bytes = records * kRecordCols * 2, sum_bytes = records * S::kWords * 4;
  const int64_t x_stride = int64_t{2} * cols, sum_stride = int64_t{4} * (cols / S::kGroup);
#if __CUDA_ARCH__ >= 900
  const uint32_t base = shared_address(shared);  // where the barrier lies
  if (threadIdx.x == 0) {
    barrier_expect(base, args.tokens * (x_bytes + sum_bytes));
    for (int token = 0; token < args.tokens; ++token) {
      copy_bytes(base + at.tokens + token * at.token_bytes, x + token * x_stride, x_bytes, base);
      copy_bytes(base + at.sums + token * at.sum_bytes, sums + token * sum_stride, sum_bytes, base);
    }
  }
  barrier_wait(base, 0);
#else
  const auto copy = [&](uint8_t* to, const uint8_t* from, int bytes) {
    for (int i = threadIdx.x * 16; i < bytes; i += static_cast<int>(blockDim.x) * 16)
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
  };
  for (int token = 0; token < args.tokens; ++token) {
    copy(shared + at.tokens + token * at.token_bytes, x + token * x_stride, x_bytes);
    copy(shared + at.sums + token * at.sum_bytes, sums + token * sum_stride, sum_bytes);
  }
  __syncthreads();
#endif
}

/// Where a thread reads its column's token in shared memory.
template <class S>
struct GemvTokens {
  uint32_t at[S::kTiles];

  /// From a step of the block's on.
  __device__ __forceinline__ GemvTokens(const GemvArgs& args, const GemvShared& shared_at, uint32_t shared, int step) {
    const int lane = threadIdx.x % 32, column = lane / 4;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      // The results of tokens that there are not are not used: whatever their operands are.
      const int token = min((t * 8 + column) % S::kTokens, args.tokens - 1);
      at[t] = shared + shared_at.tokens + token * shared_at.token_bytes + step * (kGemvStep * kRecordCols * 2) +
              lane % 4 * 16;
    }
  }
  __device__ __forceinline__ void next() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) at[t] += kGemvStep * kRecordCols * 2;
  }
};

/// Where a thread reads the sums of its columns 2c and 2c + 1 in its group.
template <class S>
struct GemvSums {
  uint32_t at[S::kTiles][2];

  __device__ __forceinline__ GemvSums(const GemvArgs& args, const GemvShared& shared_at, uint32_t shared, int step) {
    const int c = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1);
        at[t][i] = shared + shared_at.sums + token * shared_at.sum_bytes +
                   (step * (kGemvStep * S::kWords) + own_part<S>()) * 4;
      }
    }
  }
  __device__ __forceinline__ float load(int t, int i, int set) const {
    return __uint_as_float(shared_32(at[t][i] + set * S::kParts * 4));
  }
  __device__ __forceinline__ void next() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) at[t][0] += kGemvStep * S::kWords * 4, at[t][1] += kGemvStep * S::kWords * 4;
  }
};

/// The thread's group of a set's sums.
template <int Parts>
__device__ __forceinline__ float own_sum(const float (&sums)[Parts][4], int e) {
  if constexpr (Parts == 1) return sums[0][e];
  const int c = threadIdx.x % 4;
  if constexpr (Parts == 2) return c < 2 ? sums[0][e] : sums[1][e];
  const float low = c % 2 == 0 ? sums[0][e] : sums[1 % Parts][e];
  const float high = c % 2 == 0 ? sums[2 % Parts][e] : sums[3 % Parts][e];
  return c < 2 ? low : high;
}

/// The part of 16 rows by all tokens of the unit at `slot`. A thread's totals are rows r and r + 8 (e / 2) of two
/// columns (e % 2); of one token both are the same, and the second is left alone.
template <class S>
__device__ __forceinline__ void multiply(uint32_t slot, const Levels<S::kCode>& levels, const GemvTokens<S>& tokens,
                                         const GemvSums<S>& sums, int zero, float (&totals)[S::kTiles][4]) {
  constexpr int kColumns = S::kTokens == 1 ? 1 : 2;
  const GemvScales<S> scales(slot, zero);
  float set[S::kTiles][S::kParts][4];
  uint32_t codes[S::kWarpCodes / 512][4];
#pragma unroll
  for (int pair = 0; pair < kGemvStep * 2; ++pair) {  // of quads: 32 columns
    const int j = pair % 2;
    if (j == 0) {
#pragma unroll
      for (int i = 0; i < S::kWarpCodes / 512; ++i) {
        const uint4 v = shared_128(slot + pair / 2 * S::kWarpCodes + i * 512 + threadIdx.x % 32 * 16);
        codes[i][0] = v.x, codes[i][1] = v.y, codes[i][2] = v.z, codes[i][3] = v.w;
      }
    }
    uint4 x[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) x[t] = shared_128(tokens.at[t] + pair * 64);
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int quad = pair * 2 + q, of_set = quad % S::kSetQuads, part = of_set / S::kQuads;
      uint32_t a[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t* from = S::kCode == Code::byte ? codes[j % (S::kWarpCodes / 512)] + h * 2 : codes[0] + j * 2 + h;
        levels.quad(from, q, a[h], a[h + 2]);
      }
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
        mma_f16(set[t][part], a, q == 0 ? x[t].x : x[t].z, q == 0 ? x[t].y : x[t].w, of_set % S::kQuads == 0);
      if (of_set != S::kSetQuads - 1) continue;
      const Scale scale[2] = {scales.load(quad / S::kSetQuads, 0), scales.load(quad / S::kSetQuads, 1)};
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          const float sum = sums.load(t, i, quad / S::kSetQuads);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& total = totals[t][2 * h + i];
            total = fmaf(scale[h].scale, own_sum(set[t], 2 * h + i), total);
            total = fmaf(scale[h].bias, sum, total);
          }
        }
      }
    }
  }
}

/// Sums up the columns of a thread's totals that are one token's, and undoes what tokens were multiplied by.
template <class S>
__device__ __forceinline__ void join_columns(const float (&scales)[S::kTiles][2], float (&totals)[S::kTiles][4]) {
  if constexpr (S::kTokens == 1) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = totals[0][2 * h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      totals[0][2 * h] = sum;
    }
  } else if constexpr (S::kTokens == 4) {
#pragma unroll
    for (int e = 0; e < 4; ++e) totals[0][e] += __shfl_xor_sync(~0u, totals[0][e], 2);
  }
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      // In two steps, as one power of two might not fit.
      constexpr float kUndone = 1 / (f16_code_scale(S::kCode) * (1 << kF16Exponent));
      totals[t][e] = totals[t][e] * kUndone * scales[t][e % 2];
    }
  }
}

/// A warp's totals of a group of rows, for the others to add.
template <class S>
__device__ __forceinline__ void store_totals(const GemvArgs& args, float* partials,
                                             const float (&totals)[S::kTiles][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = t * 8 + lane % 4 * 2 + e % 2;
      if (token < S::kTokens && token < args.tokens)
        partials[token * kGemvGroupRows + lane / 4 + e / 2 * 8] = totals[t][e];
    }
  }
}

/// Adds up what warps and slices have, in the order of columns: in shared memory of the block or cluster, each block a
/// part of the outputs; or leaves the slices to gemv_sum.
__device__ __forceinline__ void add_parts(const GemvArgs& args, uint8_t* shared, int partials_at, int first,
                                          int groups) {
  const int slice = blockIdx.x, slices = gridDim.x, stride = args.tokens * kGemvGroupRows;  // from warp to warp
  const auto* const partials = reinterpret_cast<const float*>(shared + partials_at);
  const auto each = [&](int begin, int step, auto sum_of) {
    for (int i = begin; i < groups * stride; i += step) {
      const int group = i / stride, within = i - group * stride, token = within / kGemvGroupRows;
      const int n = (first + group) * kGemvGroupRows + within % kGemvGroupRows;
      const float sum = sum_of(group * args.warps * stride + within);
      if (slices > 1 && args.partials != nullptr)
        args.partials[(static_cast<int64_t>(slice) * args.tokens + token) * args.padded_rows + n] = sum;
      else if (n < args.rows)
        args.y[token * args.y_stride + n] = sum;
    }
  };
  if (slices == 1 || args.partials != nullptr) {
    __syncthreads();
    each(threadIdx.x, blockDim.x, [&](int at) {
      float sum = partials[at];
      for (int w = 1; w < args.warps; ++w) sum += partials[at + w * stride];
      return sum;
    });
    return;
  }
#if __CUDA_ARCH__ >= 900
  cluster_sync();
  each(slice * blockDim.x + threadIdx.x, slices * blockDim.x, [&](int at) {
    const uint32_t from = shared_address(partials + at);
    float part[kGemvSlices] = {};
    for (int w = 0; w < args.warps; ++w) {
#pragma unroll
      for (int s = 0; s < kGemvSlices; ++s) {
        if (s < slices) part[s] += cluster_f32(from + w * stride * 4, s);
      }
    }
    float sum = part[0];
#pragma unroll
    for (int s = 1; s < kGemvSlices; ++s) {
      if (s < slices) sum += part[s];
    }
    return sum;
  });
  cluster_sync();  // no block's memory goes while others read it
#endif
}

template <class S>
__device__ __forceinline__ void gemv(const GemvArgs& args, uint8_t* shared) {
  const int c = threadIdx.x % 4, warp = threadIdx.x / 32;
  const GemvSplit split{args.slices, args.warps};
  const int first = gemv_first_group(args.groups, blockIdx.y, gridDim.y);
  const int groups = gemv_first_group(args.groups, blockIdx.y + 1, gridDim.y) - first;
  const int slice = static_cast<int>(blockIdx.x) * split.warps, parts = split.slices * split.warps;
  const int begin = gemv_first_step(args.panels, slice, parts), warp_part = warp % split.warps;
  const GemvPart part{warp / split.warps, groups, kGemvThreads / 32 / split.warps,
                      gemv_first_step(args.panels, slice + warp_part, parts),
                      gemv_first_step(args.panels, slice + warp_part + 1, parts)};
  const GemvShared at = gemv_shared(args.panels, split, groups, args.tokens, S::kTokens, S::format());
  const uint32_t base = shared_address(shared);
  GemvWeights<S> weights(args, {first + part.group, first + groups, part.stride, part.begin, part.end},
                         base + at.units + warp * (S::kUnits * S::kUnitBytes));
  weights.begin();
  // Weights are constant; only what follows depends on the kernel before.
  let_next_begin();
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    barrier_init(base, 1);
    barrier_init_fence();
  }
#endif
  __syncthreads();
  wait_for_previous();
  float x_scales[S::kTiles][2];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) x_scales[t][i] = args.x_scales[min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1)];
  }
  copy_tokens<S>(args, at, shared, begin, gemv_first_step(args.panels, slice + split.warps, parts));

  const Levels<S::kCode> levels(args);
  auto* const partials = reinterpret_cast<float*>(shared + at.partials);
#pragma unroll 1
  for (int group = part.group; group < groups; group += part.stride) {
    GemvTokens<S> tokens(args, at, base, part.begin - begin);
    GemvSums<S> sums(args, at, base, part.begin - begin);
    float totals[S::kTiles][4] = {};
#pragma unroll 1
    for (int step = part.begin; step < part.end; ++step) {
      weights.wait();
      multiply<S>(weights.slot(), levels, tokens, sums, args.zero, totals);
      weights.next();
      tokens.next(), sums.next();
    }
    join_columns<S>(x_scales, totals);
    store_totals<S>(args, partials + (group * split.warps + warp_part) * args.tokens * kGemvGroupRows, totals);
  }
  add_parts(args, shared, at.partials, first, groups);
}

template <Code kCode, int Words, int Tokens>
__device__ __forceinline__ void gemv(const GemvArgs& args) {
  extern __shared__ __align__(16) uint8_t shared[];
  switch (static_cast<ScaleWords>(args.scale_words)) {
    case ScaleWords::pair_f16: return gemv<GemvShape<kCode, ScaleWords::pair_f16, Words, Tokens>>(args, shared);
    case ScaleWords::pair_bf16: return gemv<GemvShape<kCode, ScaleWords::pair_bf16, Words, Tokens>>(args, shared);
    case ScaleWords::single_f16: return gemv<GemvShape<kCode, ScaleWords::single_f16, Words, Tokens>>(args, shared);
    case ScaleWords::single_bf16: return gemv<GemvShape<kCode, ScaleWords::single_bf16, Words, Tokens>>(args, shared);
    case ScaleWords::nested:  // groups of 16 or 32
      if constexpr (Words > 1) gemv<GemvShape<kCode, ScaleWords::nested, Words, Tokens>>(args, shared);
      return;
    default: return;
  }
}

}  // namespace octalane::cuda
