// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming; so each warp is on its own: it has 16 rows of a slice of the columns, whose codes and scales it copies to its
// own slots in shared memory, several units of 256 columns ahead (gemv_units) and the first of them before the tokens
// are waited for. A block takes half of a multiprocessor at most: one of the next kernel begins beside it.
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
__device__ __forceinline__ void copy_tokens(const GemvArgs& args, const GemvShared& at, uint8_t* shared, int first,
                                            int records) {
  const int cols = gemv_cols(args.panels), steps = (records + kGemvStep - 1) / kGemvStep;
  const auto* x = reinterpret_cast<const uint8_t*>(args.x + first * kRecordCols);
  const auto* sums = reinterpret_cast<const uint8_t*>(args.x_sums + first * S::kWords);
  const int x_bytes = steps * kGemvStep * kRecordCols * 2, sum_bytes = S::kSums ? steps * kGemvStep * S::kWords * 4 : 0;
  const int64_t x_stride = int64_t{2} * cols, sum_stride = int64_t{4} * (cols / S::kGroup);
#if __CUDA_ARCH__ >= 900
  const uint32_t base = shared_address(shared);  // where the barrier lies
  if (threadIdx.x == 0) {
    barrier_expect(base, args.tokens * (x_bytes + sum_bytes));
    for (int token = 0; token < args.tokens; ++token) {
      copy_bytes(base + at.tokens + token * at.token_bytes, x + token * x_stride, x_bytes, base);
      if (S::kSums) copy_bytes(base + at.sums + token * at.sum_bytes, sums + token * sum_stride, sum_bytes, base);
    }
  }
  barrier_wait(base, 0);
#else
  const auto copy = [&](uint8_t* to, const uint8_t* from, int bytes) {
    for (int i = threadIdx.x * 16; i < bytes; i += kGemvThreads * 16)
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

  __device__ __forceinline__ GemvTokens(const GemvArgs& args, const GemvShared& shared_at, const uint8_t* shared) {
    const int lane = threadIdx.x % 32, column = lane / 4;
    const uint32_t base = shared_address(shared) + lane % 4 * 16;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      // The results of tokens that there are not are not used: whatever their operands are.
      const int token = min(S::kTokens < 8 ? column % S::kTokens : t * 8 + column, args.tokens - 1);
      at[t] = base + shared_at.tokens + token * shared_at.token_bytes;
    }
    zeros = base + shared_at.zeros;
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) mine[p] = S::kParts == 1 || column / S::kTokens == p ? ~0u : 0u;
  }
  __device__ __forceinline__ void next() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) at[t] += kGemvStep * kRecordCols * 2;
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

  __device__ __forceinline__ GemvSums(const GemvArgs& args, const GemvShared& shared_at, const uint8_t* shared) {
    const int c = threadIdx.x % 4;
    const uint32_t base = shared_address(shared) + shared_at.sums;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1);
        const int group = S::kTokens == 1 ? 2 * c % S::kParts : 2 * c / S::kTokens;
        at[t][i] = base + token * shared_at.sum_bytes + group * 4;
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
  __device__ __forceinline__ void next() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) at[t][0] += kGemvStep * S::kWords * 4, at[t][1] += kGemvStep * S::kWords * 4;
  }
};

/// The part of 16 rows by all tokens of the unit at `slot`. A thread's totals are rows r and r + 8 (e / 2) of two
/// columns (e % 2).
template <class S>
__device__ __forceinline__ void multiply(uint32_t slot, const Levels<S::kCode>& levels, const GemvTokens<S>& tokens,
                                         const GemvSums<S>& sums, int zero, float (&totals)[S::kTiles][4]) {
  const GemvScales<S> scales(slot, zero);
  float set[S::kTiles][S::kChains][4];
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
      const int quad = pair * 2 + q, of_set = quad % S::kSetQuads;
      uint32_t a[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t* from = S::kCode == Code::byte ? codes[j % (S::kWarpCodes / 512)] + h * 2 : codes[0] + j * 2 + h;
        levels.quad(from, q, a[h], a[h + 2]);
      }
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
        mma_f16(set[t][of_set % S::kChains], a, b[t][q].x, b[t][q].y, of_set < S::kChains);
      if (of_set != S::kSetQuads - 1) continue;
      Scale scale[2][2];  // [h][column]
      scales.load(quad / S::kSetQuads, scale);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        float2 sum{0, 0};
        if constexpr (S::kSums) sum = sums.load(t, quad / S::kSetQuads);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float all = set[t][0][e];
#pragma unroll
          for (int chain = 1; chain < S::kChains; ++chain) all += set[t][chain][e];
          const Scale& by = scale[e / 2][e % 2];
          totals[t][e] = fmaf(by.scale, all, totals[t][e]);
          if constexpr (S::kSums) totals[t][e] = fmaf(by.bias, e % 2 == 0 ? sum.x : sum.y, totals[t][e]);
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
      if (S::kParts == 4 && threadIdx.x % 4 > 1) sum = 0;  // their columns have nothing of any group
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

/// Adds the slices up, in their order: in shared memory of the cluster, each block a part of the rows; or leaves them
/// to gemv_sum.
template <class S>
__device__ __forceinline__ void add_slices(const GemvArgs& args, const GemvShared& at, uint8_t* shared,
                                           const float (&totals)[S::kTiles][4]) {
  const int lane = threadIdx.x % 32, slice = blockIdx.x, slices = gridDim.x;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4, first = static_cast<int>(blockIdx.y) * kGemvRows;
  const auto each = [&](auto use) {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = t * 8 + lane % 4 * 2 + e % 2, n = row + e / 2 * 8;
        if (token < S::kTokens && token < args.tokens) use(token, n, totals[t][e]);
      }
    }
  };
  const auto store = [&](int token, int n, float value) {
    if (first + n < args.rows) args.y[token * args.y_stride + first + n] = value;
  };
  if (args.partials != nullptr) {
    each([&](int token, int n, float value) {
      args.partials[(static_cast<int64_t>(slice) * args.tokens + token) * args.padded_rows + first + n] = value;
    });
    return;
  }
  if (slices == 1) return each(store);
#if __CUDA_ARCH__ >= 900
  auto* const partials = reinterpret_cast<float*>(shared + at.units);
  __syncthreads();  // units of all warps have been read
  each([&](int token, int n, float value) { partials[token * kGemvPartialRow + n] = value; });
  cluster_sync();
  const int rows = kGemvRows / slices;
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
    store(token, n, sum);
  }
  cluster_sync();  // no block's memory goes while others read it
#endif
}

template <class S>
__device__ __forceinline__ void gemv(const GemvArgs& args, uint8_t* shared) {
  const int c = threadIdx.x % 4;
  const int begin = gemv_first_record(args.panels, blockIdx.x, args.slices);
  const int records = gemv_first_record(args.panels, blockIdx.x + 1, args.slices) - begin;
  const GemvShared at = gemv_shared(args.panels, args.slices, args.tokens, S::kTokens, S::format());
  const uint32_t base = shared_address(shared);
  GemvWeights<S> weights(args, base + at.units + threadIdx.x / 32 * (S::kUnits * S::kUnitBytes), begin, records);
  weights.begin();
  // Weights are constant; only what follows depends on the kernel before.
  let_next_begin();
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    barrier_init(base, 1);
    barrier_init_fence();
  }
#endif
  if constexpr (S::kCode == Code::table) fill_table(args, shared + at.table);
  if (S::kParts > 1 && threadIdx.x < kGemvStep * 8) reinterpret_cast<uint4*>(shared + at.zeros)[threadIdx.x] = {};
  __syncthreads();
  wait_for_previous();
  float x_scales[S::kTiles][2];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) x_scales[t][i] = args.x_scales[min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1)];
  }
  copy_tokens<S>(args, at, shared, begin, records);

  const Levels<S::kCode> levels(shared + at.table);
  GemvTokens<S> tokens(args, at, shared);
  GemvSums<S> sums(args, at, shared);
  float totals[S::kTiles][4] = {};
#pragma unroll 1
  for (int k = 0; k < records; k += kGemvStep) {
    weights.wait();
    multiply<S>(weights.slot(), levels, tokens, sums, args.zero, totals);
    weights.next();
    tokens.next(), sums.next();
  }
  join_columns<S>(x_scales, totals);
  add_slices<S>(args, at, shared, totals);
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
