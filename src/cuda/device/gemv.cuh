// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming; so each warp is on its own: 16 rows of a slice of the columns, whose codes and scales go from memory to
// registers, 16 bytes a thread and load, several units ahead (GemvShape::kDepth) and the first of them before the
// tokens are waited for. A ring in shared memory would hold no more: a warp's share of it is what its registers hold,
// and filling, waiting and reading back would take instructions and a bandwidth that decoding and the tokens need.
//
// Codes are the left operand of mma.sync, as exact integers in binary16; tokens the eight columns of the right one, in
// binary16 too: a block multiplies its part of a token by the power of two that brings its largest value to 2^14, so
// that only values 2^28 times smaller than it are rounded, to 2^-36 of it. The sum of a scale group is multiplied by
// the group's scale in fp32, and bias and zero by the sum of the group's activations, which a block adds up as it
// stages the tokens; no weight is rounded. Every sum's order depends on K and the kernel alone.
#pragma once

#include "cuda/device/gemv_weights.cuh"

namespace octalane::cuda {

/// The exponent of a token's largest value, of which fp32 has the bits: what scales its values fits fp32 as well.
__device__ __forceinline__ int exponent_of(uint32_t bits) {
  return min(max(static_cast<int>(bits >> 23) - 127, -112), 127);
}
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

/// Calls at(token, unit, from, to, inside) for this thread's units of 16 columns of all tokens, in turns that the lanes
/// of a warp take together: `from` in memory, `to` in shared memory. Of each 32 columns thread c of a quad has 16
/// bytes there: the columns that it has of codes, in the order in which Levels has them.
template <class At>
__device__ __forceinline__ void for_each_unit(const GemvArgs& args, const GemvShared& shared_at, uint8_t* shared,
                                              int first, int records, At at) {
  const int units = records * 4;  // of a token
#pragma unroll 1
  for (int base = 0; base < units * args.tokens; base += kGemvThreads) {
    const int token = (base + static_cast<int>(threadIdx.x)) / units;
    const int unit = base + static_cast<int>(threadIdx.x) - token * units;
    at(token, unit, args.x + token * args.x_stride + first * kRecordCols + unit * 16,
       shared + shared_at.tokens + token * shared_at.token_bytes + unit / 2 * 64 + unit % 2 * 8, token < args.tokens);
  }
}

/// The block's columns of all tokens in binary16, times 2^14 over the largest, and their sums by group in fp32, times
/// what the sums of codes are multiplied by too.
template <class S>
__device__ __forceinline__ void stage_tokens(const GemvArgs& args, const GemvShared& at, uint8_t* shared, int first,
                                             int records) {
  auto* const largest = reinterpret_cast<uint32_t*>(shared + at.exponents);
  for_each_unit(args, at, shared, first, records, [&](int token, int, const uint16_t* from, uint8_t* to, bool inside) {
    uint4 v[2] = {};  // of each quad of columns the first two, the last two
    if (inside) {
      v[0] = reinterpret_cast<const uint4*>(from)[0], v[1] = reinterpret_cast<const uint4*>(from)[1];
    }
    const uint32_t words[2][4] = {{v[0].x, v[0].y, v[0].z, v[0].w}, {v[1].x, v[1].y, v[1].z, v[1].w}};
    uint32_t most = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (inside) *reinterpret_cast<uint2*>(to + c * 16) = {words[0][c], words[1][c]};
#pragma unroll
      for (int i = 0; i < 2; ++i) most = max(most, max(words[i][c] << 16 & 0x7fff0000u, words[i][c] & 0x7fff0000u));
    }
    // A record's four units are of one token.
    most = max(most, __shfl_xor_sync(~0u, most, 1));
    most = max(most, __shfl_xor_sync(~0u, most, 2));
    if (inside && threadIdx.x % 4 == 0) atomicMax(largest + token, most);
  });
  __syncthreads();
  for_each_unit(args, at, shared, first, records, [&](int token, int unit, const uint16_t*, uint8_t* to, bool inside) {
    const float scale = power_of_two(inside ? 14 - exponent_of(largest[token]) : 0);
    const float column_scale = scale * Levels<S::kCode>::scale_of_quad(unit % 2);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint2 quad{};
      if (inside) quad = *reinterpret_cast<const uint2*>(to + c * 16);
      const float v[4] = {__uint_as_float(quad.x << 16), __uint_as_float(quad.x & 0xffff0000u),
                          __uint_as_float(quad.y << 16), __uint_as_float(quad.y & 0xffff0000u)};
#pragma unroll
      for (int i = 0; i < 4; i += 2) sum += v[i] * scale + v[i + 1] * scale;
      constexpr bool kTable = S::kCode == Code::table;
      quad = {pack_f16(v[0] * column_scale, v[kTable ? 1 : 2] * column_scale),
              pack_f16(v[kTable ? 2 : 1] * column_scale, v[3] * column_scale)};
      if (inside) *reinterpret_cast<uint2*>(to + c * 16) = quad;
    }
    if constexpr (S::kSums) {
      // Neighbours have the rest of the group.
#pragma unroll
      for (int lanes = 1; lanes < S::kQuads; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      if (inside && unit % S::kQuads == 0)
        reinterpret_cast<float*>(shared + at.sums)[unit / S::kQuads * S::kTokens + token] =
            sum * Levels<S::kCode>::kScale;
    }
  });
}

/// What units of several records have beyond the slice: no activations. And what is there before tokens are.
template <class S>
__device__ __forceinline__ void clear(const GemvArgs& args, const GemvShared& at, uint8_t* shared, int records) {
  const int thread = threadIdx.x;
  if (thread < S::kTokens) reinterpret_cast<uint32_t*>(shared + at.exponents)[thread] = 0;
  if constexpr (S::kParts > 1) {
    if (thread < kGemvStep * 8) reinterpret_cast<uint4*>(shared + at.zeros)[thread] = {};
  }
  if constexpr (S::kRecords > 1) {
    const int missing = gemv_slice_records(args.panels, args.slices) - records;
    for (int i = thread; i < missing * 8 * args.tokens; i += kGemvThreads) {
      const int token = i / (missing * 8);
      reinterpret_cast<uint4*>(shared + at.tokens + token * at.token_bytes + records * 128)[i % (missing * 8)] = {};
    }
    float* const sums = reinterpret_cast<float*>(shared + at.sums) + records * S::kWords * S::kTokens;
    for (int i = thread; i < missing * S::kWords * S::kTokens; i += kGemvThreads) sums[i] = 0;
  }
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

/// A unit's part of 16 rows by all tokens. `sums` are this thread's, of the unit. A thread's totals are rows r and
/// r + 8 (e / 2) of two columns (e % 2).
template <class S>
__device__ __forceinline__ void multiply(const GemvUnit<S>& unit, const Levels<S::kCode>& levels,
                                         const GemvTokens<S>& tokens, const float* sums, int zero,
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
        if constexpr (S::kSums) sum = *reinterpret_cast<const float2*>(sums + word * S::kParts * S::kTokens + t * 8);
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
__device__ __forceinline__ void join_columns(const GemvShared& at, const uint8_t* shared,
                                             float (&totals)[S::kTiles][4]) {
  const int c = threadIdx.x % 4;
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
      const int token = (t * 8 + c * 2 + e % 2) % S::kTokens;
      const int exponent = exponent_of(reinterpret_cast<const uint32_t*>(shared + at.exponents)[token]);
      // In two steps, as one power of two might not fit.
      totals[t][e] = totals[t][e] * (0x1p-14f / Levels<S::kCode>::kScale) * power_of_two(exponent);
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
  clear<S>(args, at, shared, records);
  __syncthreads();
  wait_for_previous();
  stage_tokens<S>(args, at, shared, begin, records);
  __syncthreads();

  const Levels<S::kCode> levels(shared);
  GemvTokens<S> tokens(args, at, shared);
  const float* sums = reinterpret_cast<const float*>(shared + at.sums) + (S::kParts == 4 ? c % 2 : c) * 2;
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
      sums += S::kRecords * S::kWords * S::kTokens;
    }
  }
  join_columns<S>(at, shared, totals);
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
