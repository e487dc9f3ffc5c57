// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming, and to all multiprocessors alike. So there is a block for each of them, with its share of the rows, and its
// warps share the columns; each warp is on its own: the codes and scales of 16 rows go from memory to registers, 16
// bytes a thread and load, several units ahead (GemvShape::kDepth) and the first of them before the tokens are waited
// for. Slots in shared memory, filled by cp.async, hold as much, but took more instructions and were slower.
//
// Codes are the left operand of mma.sync, as exact integers in binary16; tokens the eight columns of the right one, as
// stage_f16 left them: exact but for values 2^24 times smaller than a token's largest. The sum of a scale group is
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

/// Where a thread reads tokens in shared memory: those of its column, or zeros for the groups that are not its
/// column's.
template <class S>
struct GemvTokens {
  uint32_t at[S::kTiles];
  uint32_t zeros, mine[S::kParts];  ///< all bits for the column's group

  /// From a step of the block's on.
  __device__ __forceinline__ GemvTokens(const GemvArgs& args, const GemvShared& shared_at, uint32_t shared, int step) {
    const int lane = threadIdx.x % 32, column = lane / 4;
    const uint32_t base = shared + lane % 4 * 16;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      // The results of tokens that there are not are not used: whatever their operands are.
      const int token = min(S::kTokens < 8 ? column % S::kTokens : t * 8 + column, args.tokens - 1);
      at[t] = base + shared_at.tokens + token * shared_at.token_bytes + step * (kGemvStep * kRecordCols * 2);
    }
    zeros = base + shared_at.zeros;
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) mine[p] = S::kParts == 1 || column / S::kTokens == p ? ~0u : 0u;
  }
  __device__ __forceinline__ void next_unit() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) at[t] += S::kRecords * kRecordCols * 2;
  }
  /// Of tile t's token and group p of a set.
  __device__ __forceinline__ uint32_t place(int t, int p) const {
    return S::kParts == 1 ? at[t] : ((at[t] ^ zeros) & mine[p]) ^ zeros;
  }
};

/// Where a thread reads the sums of its columns 2c and 2c + 1: of one token groups, else tokens.
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
        const int group = S::kTokens == 1 ? 2 * c % S::kParts : 2 * c / S::kTokens;
        at[t][i] = shared + shared_at.sums + token * shared_at.sum_bytes + (step * (kGemvStep * S::kWords) + group) * 4;
      }
    }
  }
  /// Of a set of groups.
  __device__ __forceinline__ float2 load(int t, int set) const {
    if constexpr (S::kTokens == 1) {
      const uint2 both = shared_64(at[t][0] + set * S::kParts * 4);
      return {__uint_as_float(both.x), __uint_as_float(both.y)};
    }
    return {__uint_as_float(shared_32(at[t][0] + set * S::kParts * 4)),
            __uint_as_float(shared_32(at[t][1] + set * S::kParts * 4))};
  }
  __device__ __forceinline__ void next_unit() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      at[t][0] += S::kRecords * S::kWords * 4, at[t][1] += S::kRecords * S::kWords * 4;
    }
  }
};

/// A unit's part of 16 rows by all tokens. `sums` are this thread's, of the unit. A thread's totals are rows r and
/// r + 8 (e / 2) of two columns (e % 2).
template <class S>
__device__ __forceinline__ void multiply(const GemvUnit<S>& unit, const Levels<S::kCode>& levels,
                                         const GemvTokens<S>& tokens, const GemvSums<S>& sums, int zero,
                                         float (&totals)[S::kTiles][4]) {
  constexpr int kSetQuads = S::kParts * S::kQuads;
  float set[S::kTiles][4];
#pragma unroll
  for (int pair = 0; pair < S::kRecords * 2; ++pair) {  // of quads: 32 columns
    uint2 b[S::kTiles][2];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      const int part = pair * 2 / S::kQuads % S::kParts;
      if constexpr (S::kQuads > 1 || S::kParts == 1) {
        const uint4 both = shared_128(tokens.place(t, part) + pair * 64);
        b[t][0] = {both.x, both.y}, b[t][1] = {both.z, both.w};
      } else {
        b[t][0] = shared_64(tokens.place(t, part) + pair * 64);
        b[t][1] = shared_64(tokens.place(t, part + 1) + pair * 64 + 8);
      }
    }
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int quad = pair * 2 + q, r = pair / 2, j = pair % 2;
      uint32_t a[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t* codes =
            S::kCode == Code::byte ? unit.codes[r][j % (S::kCodeWords / 4)] + h * 2 : unit.codes[r][0] + j * 2 + h;
        levels.quad(codes, q, a[h], a[h + 2]);
      }
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) mma_f16(set[t], a, b[t][q].x, b[t][q].y, quad % kSetQuads == 0);
      if (quad % kSetQuads != kSetQuads - 1) continue;
      const int word = quad / kSetQuads;
      Scale scale[2][2];  // [h][column]
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scale[h][0] = unit.scale(h, S::kTokens == 1 ? 0 : word, zero);
        scale[h][1] = S::kTokens == 1 ? unit.scale(h, 1, zero) : scale[h][0];
      }
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        const float2 sum = sums.load(t, word);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Scale& by = scale[e / 2][e % 2];
          totals[t][e] = fmaf(by.scale, set[t][e], totals[t][e]);
          totals[t][e] = fmaf(by.bias, e % 2 == 0 ? sum.x : sum.y, totals[t][e]);
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
      float sum = totals[0][2 * h] + totals[0][2 * h + 1];
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
      constexpr float kUndone = 1 / (kF16CodeScale * (1 << kF16Exponent));
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
  const GemvPart part{first + warp / split.warps, first + groups, kGemvThreads / 32 / split.warps,
                      gemv_first_step(args.panels, slice + warp_part, parts),
                      gemv_first_step(args.panels, slice + warp_part + 1, parts)};
  const int records = min(part.end * kGemvStep, args.panels * 2) - part.begin * kGemvStep;
  const int units = (records + S::kRecords - 1) / S::kRecords;  // of a group
  GemvUnit<S> held[S::kDepth];
  GemvLoads<S> loads(args, part);
#pragma unroll
  for (int i = 0; i < S::kDepth; ++i) loads.next(held[i]);
  // Weights are constant; only what follows depends on the kernel before.
  let_next_begin();
  const GemvShared at = gemv_shared(args.panels, split, groups, args.tokens, S::kGroup);
  const uint32_t base = shared_address(shared);
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    barrier_init(base, 1);
    barrier_init_fence();
  }
#endif
  if constexpr (S::kParts > 1) {
    if (threadIdx.x < kGemvStep * 8) reinterpret_cast<uint4*>(shared + at.zeros)[threadIdx.x] = {};
  }
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
  float* partials = reinterpret_cast<float*>(shared + at.partials) + warp * args.tokens * kGemvGroupRows;
  const GemvTokens<S> first_tokens(args, at, base, part.begin - begin);
  const GemvSums<S> first_sums(args, at, base, part.begin - begin);
  GemvTokens<S> tokens = first_tokens;
  GemvSums<S> sums = first_sums;
  float totals[S::kTiles][4] = {};
  int group = part.group, left = units;
#pragma unroll 1
  while (group < part.groups) {
#pragma unroll
    for (int i = 0; i < S::kDepth; ++i) {
      multiply(held[i], levels, tokens, sums, args.zero, totals);
      loads.next(held[i]);
      tokens.next_unit(), sums.next_unit();
      if (--left > 0) continue;
      join_columns<S>(x_scales, totals);
      store_totals<S>(args, partials, totals);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) totals[t][e] = 0;
      }
      partials += part.stride * split.warps * args.tokens * kGemvGroupRows;
      tokens = first_tokens, sums = first_sums, left = units, group += part.stride;
      if (group >= part.groups) break;
    }
  }
  add_parts(args, shared, at.partials, first, groups);
}

template <Code kCode, int Words, int Tokens, int Held>
__device__ __forceinline__ void gemv(const GemvArgs& args) {
  extern __shared__ __align__(16) uint8_t shared[];
  switch (static_cast<ScaleWords>(args.scale_words)) {
    case ScaleWords::pair_f16: return gemv<GemvShape<kCode, ScaleWords::pair_f16, Words, Tokens, Held>>(args, shared);
    case ScaleWords::pair_bf16: return gemv<GemvShape<kCode, ScaleWords::pair_bf16, Words, Tokens, Held>>(args, shared);
    case ScaleWords::single_f16:
      return gemv<GemvShape<kCode, ScaleWords::single_f16, Words, Tokens, Held>>(args, shared);
    case ScaleWords::single_bf16:
      return gemv<GemvShape<kCode, ScaleWords::single_bf16, Words, Tokens, Held>>(args, shared);
    case ScaleWords::nested:  // groups of 16 or 32
      if constexpr (Words > 1) gemv<GemvShape<kCode, ScaleWords::nested, Words, Tokens, Held>>(args, shared);
      return;
    default: return;
  }
}

}  // namespace octalane::cuda
