// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming; so each warp is on its own: 16 rows of a slice of the columns, whose codes and scales go from memory to
// registers, 16 bytes a thread and load, several units ahead (GemvShape::kDepth) and the first of them before the
// tokens are waited for. A ring in shared memory would hold no more: a warp's share of it is what its registers hold,
// and filling, waiting and reading back would take instructions and a bandwidth that decoding and the tokens need.
//
// Codes are the left operand of mma.sync, as exact integers in binary16; tokens the eight columns of the right one, as
// stage_f16 left them: exact but for values 2^28 times smaller than a token's largest. The sum of a scale group is
// multiplied by the group's scale in fp32, and bias and zero by the sum of the group's activations; no weight is
// rounded. Every sum's order depends on K and the kernel alone.
#pragma once

#include "cuda/device/gemv_weights.cuh"

namespace octalane::cuda {

/// The block's columns of all tokens, and their sums.
template <class S>
__device__ __forceinline__ void copy_tokens(const GemvArgs& args, const GemvShared& at, const uint8_t* shared,
                                            int first, int records) {
  const uint32_t base = shared_address(shared);
  const int thread = threadIdx.x, cols = gemv_cols(args.panels), steps = (records + kGemvStep - 1) / kGemvStep;
#pragma unroll 1
  for (int token = 0; token < args.tokens; ++token) {
    const auto* from = reinterpret_cast<const uint8_t*>(args.x + static_cast<int64_t>(token) * cols) + first * 128;
    for (int i = thread; i < steps * (kGemvStep * 8); i += kGemvThreads)
      copy_16(base + at.tokens + token * at.token_bytes + i * 16, from + i * 16);
  }
  if constexpr (S::kSums) {
    const int chunks = steps * kGemvStep * S::kWords / 4;  // of a token
    for (int i = thread; i < chunks * args.tokens; i += kGemvThreads) {
      const int token = i / chunks, chunk = i - token * chunks;
      copy_16(base + at.sums + token * at.sum_bytes + chunk * 16,
              args.x_sums + static_cast<int64_t>(token) * (cols / S::kGroup) + first * S::kWords + chunk * 4);
    }
  }
  copies_done();
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
  /// Of tile t's token and group p of a set.
  __device__ __forceinline__ uint32_t place(int t, int p) const {
    return S::kParts == 1 ? at[t] : ((at[t] ^ zeros) & mine[p]) ^ zeros;
  }
};

/// Where a thread reads the sums of its columns 2c and 2c + 1: of one token groups, else tokens.
template <class S>
struct GemvSums {
  const float* at[S::kTiles][2];

  __device__ __forceinline__ GemvSums(const GemvArgs& args, const GemvShared& shared_at, const uint8_t* shared) {
    const int c = threadIdx.x % 4;
    const uint8_t* const base = shared + shared_at.sums;
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1);
        const int group = S::kTokens == 1 ? (2 * c) % S::kParts : 2 * c / S::kTokens;
        at[t][i] = reinterpret_cast<const float*>(base + token * shared_at.sum_bytes) + group;
      }
    }
  }
  /// Of a set of groups.
  __device__ __forceinline__ float2 load(int t, int set) const {
    if constexpr (S::kTokens == 1) return *reinterpret_cast<const float2*>(at[t][0] + set * S::kParts);
    return {at[t][0][set * S::kParts], at[t][1][set * S::kParts]};
  }
  __device__ __forceinline__ void next_unit() {
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) at[t][i] += S::kRecords * S::kWords;
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
        float2 sum{0, 0};
        if constexpr (S::kSums) sum = sums.load(t, word);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const Scale& by = scale[e / 2][e % 2];
          totals[t][e] = fmaf(by.scale, set[t][e], totals[t][e]);
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
  const int lane = threadIdx.x % 32, slice = blockIdx.x;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4, first = static_cast<int>(blockIdx.y) * kGemvRows;
  auto* partials = reinterpret_cast<float*>(shared + at.partials);
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = t * 8 + lane % 4 * 2 + e % 2, n = row + e / 2 * 8;
      if (token >= S::kTokens || token >= args.tokens) continue;
      if (args.partials == nullptr)
        partials[token * kGemvPartialRow + n] = totals[t][e];
      else
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
  const int units = (records + S::kRecords - 1) / S::kRecords;
  const int64_t block = int64_t{blockIdx.y} * 2 + warp / 4;  // of 64 rows
  const uint8_t* const record = args.records + (block * args.panels * 2 + begin) * S::kRecordBytes;
  const uint8_t* codes_at = record + (warp % 4 * 32 + lane) * 16;
  const uint8_t* words_at = record + S::kCodeBytes + (warp % 4 * 16 + g) * S::kRowBytes +
                            GemvUnit<S>::first_record() * S::kRecordBytes + GemvUnit<S>::first_word() * S::kWordBytes;
  const uint32_t* const supers_at = args.supers + block * ((args.panels + 1) / 2) * 64 + warp % 4 * 16 + g;
  GemvUnit<S> held[S::kDepth];
  int ahead = 0;  // units whose loads have begun
  const auto load = [&](GemvUnit<S>& to) {
    to.load(codes_at, words_at, supers_at + (begin + ahead * S::kRecords) / 4 * 64, records - ahead * S::kRecords);
    codes_at += S::kRecords * S::kRecordBytes, words_at += S::kRecords * S::kRecordBytes, ++ahead;
  };
#pragma unroll
  for (int i = 0; i < S::kDepth; ++i) {
    if (i < units) load(held[i]);
  }
  // Weights are constant; only what follows depends on the kernel before.
  let_next_begin();
  const GemvShared at =
      gemv_shared(args.panels, args.slices, args.tokens, S::kTokens, S::kGroup, S::kCode == Code::table);
  if constexpr (S::kCode == Code::table) fill_table(args, shared);
  if (S::kParts > 1 && threadIdx.x < kGemvStep * 8) reinterpret_cast<uint4*>(shared + at.zeros)[threadIdx.x] = {};
  wait_for_previous();
  copy_tokens<S>(args, at, shared, begin, records);
  float scales[S::kTiles][2];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[t][i] = args.x_scales[min((t * 8 + 2 * c + i) % S::kTokens, args.tokens - 1)];
  }
  __syncthreads();

  const Levels<S::kCode> levels(shared);
  GemvTokens<S> tokens(args, at, shared);
  GemvSums<S> sums(args, at, shared);
  float totals[S::kTiles][4] = {};
#pragma unroll 1
  for (int k = 0; k < units; k += S::kDepth) {
#pragma unroll
    for (int i = 0; i < S::kDepth; ++i) {
      if (k + i >= units) break;
      multiply(held[i], levels, tokens, sums, args.zero, totals);
      if (ahead < units) load(held[i]);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) tokens.at[t] += S::kRecords * kRecordCols * 2;
      sums.next_unit();
    }
  }
  join_columns<S>(scales, totals);
  add_slices<S>(args, at, shared, totals);
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
