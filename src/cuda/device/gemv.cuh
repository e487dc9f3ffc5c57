// y[tokens, rows] = x W^T for few tokens, straight from the records. What counts is that the weights' bytes never stop
// coming; so each warp is on its own: 16 rows of a slice of the columns, whose codes and scales go from memory to
// registers, 16 bytes a thread and load, kDepth records ahead. With 24 to 32 warps on a multiprocessor that keeps 50 to
// 80 KB in flight, and there is no stage in shared memory to fill, wait for and read back: half the traffic there
// belongs to the tokens already.
//
// Levels are the left operand of mma.sync, as exact integers in bfloat16; tokens the eight columns of the right one.
// The sum of a scale group is multiplied by the group's scale in fp32, and a bias by the sum of the group's
// activations, so no weight is rounded. Every sum's order depends on K alone: within a group that of the instruction,
// then groups, then slices, one after another.
#pragma once

#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/gemv_args.h"

namespace octalane::cuda {

constexpr __host__ __device__ bool has_bias(ScaleWords kind) {
  return kind == ScaleWords::pair_f16 || kind == ScaleWords::pair_bf16 || kind == ScaleWords::nested;
}

/// `Words` of a row of a record, `Tiles` of eight tokens, `Held` registers for what has not been multiplied yet.
template <Code kCodeOf, ScaleWords kKindOf, int Words, int Tiles, int Held>
struct GemvShape {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleWords kKind = kKindOf;
  static constexpr int kWords = Words, kTiles = Tiles, kGroup = kRecordCols / Words;
  static constexpr int kCodeWords = code_bits(kCode);          ///< of a thread and record
  static constexpr int kRowBytes = Words * word_bytes(kKind);  ///< of scale words, a row and record
  static constexpr int kRowWords = (kRowBytes + 3) / 4;
  static constexpr int kRegisters = kCodeWords + 2 * kRowWords + (kKind == ScaleWords::nested ? 2 : 0);
  static constexpr int kDepth = Held < 2 * kRegisters ? 2 : Held > 6 * kRegisters ? 6 : Held / kRegisters;
};

/// What a thread holds of a record: rows r and r + 8.
template <class S>
struct GemvRecord {
  uint32_t codes[S::kCodeWords / 4][4];
  uint32_t words[2][S::kRowWords];
  uint32_t supers[2];

  /// `codes_at` and `words_at` are this thread's, of the record.
  __device__ __forceinline__ void load(const uint8_t* codes_at, const uint8_t* words_at, const uint32_t* supers_at) {
#pragma unroll
    for (int j = 0; j < S::kCodeWords / 4; ++j) stream(codes_at + j * 2048, codes[j]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (S::kRowBytes == 2)
        words[h][0] = stream_16(words_at + h * 8 * S::kRowBytes);
      else
        stream(words_at + h * 8 * S::kRowBytes, words[h]);
      if constexpr (S::kKind == ScaleWords::nested) supers[h] = cached_32(supers_at + h * 8);
    }
  }

  __device__ __forceinline__ Scale scale(int h, int word) const {
    const uint32_t bits = word_bytes(S::kKind) == 4 ? words[h][word] : words[h][word / 2] >> word % 2 * 16;
    return exact_scale(bits, S::kKind, S::kKind == ScaleWords::nested ? supers[h] : 0);
  }
};

/// From codes to pairs of levels in bfloat16.
template <Code kCode>
struct Levels {
  uint32_t offset;       ///< integers: what is added at the end, twice
  const uint8_t* table;  ///< this lane's copy

  __device__ __forceinline__ Levels(const GemvArgs& args, const uint8_t* shared) {
    if constexpr (kCode == Code::table) {
      table = shared + threadIdx.x % 32 * 4;
    } else {
      const float value = static_cast<float>((kCode == Code::nibble ? -128 : 128) - args.zero);
      offset = permute(__float_as_uint(value), 0, 0x3232);
    }
  }

  /// Quad q of the eight codes of `at`: columns 0 and 2, and 1 and 3; of tables 0 and 1, and 2 and 3.
  __device__ __forceinline__ void quad(const uint32_t* at, int q, uint32_t& first, uint32_t& second) const {
    if constexpr (kCode == Code::nibble) {
      first = nibbles(at[0] >> 4 * q), second = nibbles(at[0] >> (8 + 4 * q));
    } else if constexpr (kCode == Code::byte) {
      first = bytes(at[q]), second = bytes(at[q] >> 8);
    } else {
      const uint32_t w = at[0];
      first = look_up(q == 0 ? w << 7 : w >> 9), second = look_up(q == 0 ? w >> 1 : w >> 17);
    }
  }

 private:
  static constexpr uint32_t kOnes = 0x3f803f80;

  /// 0x4300 | code is 128 + code.
  __device__ __forceinline__ uint32_t nibbles(uint32_t w) const {
    return fma_bf16((w & 0x000f000fu) | 0x43004300u, kOnes, offset);
  }
  /// 128 + the low seven bits, less 256 or, with the eighth bit, 128: code - 128. Each step is exact.
  __device__ __forceinline__ uint32_t bytes(uint32_t w) const {
    const uint32_t less = (w & 0x00800080u) ^ 0xc380c380u;
    return fma_bf16(fma_bf16((w & 0x007f007fu) | 0x43004300u, kOnes, less), kOnes, offset);
  }
  __device__ __forceinline__ uint32_t look_up(uint32_t w) const {
    return *reinterpret_cast<const uint32_t*>(table + (w & 0x7f80u));
  }
};

/// Pairs of levels by pairs of codes, a copy for each lane, so that lookups never meet in a bank.
__device__ __forceinline__ void fill_table(const GemvArgs& args, uint8_t* shared) {
  const auto level = [&](int code) {
    const int value = static_cast<int>(args.table[code / 4] >> code % 4 * 8 & 255u) - 128;
    return __float_as_uint(static_cast<float>(value));
  };
  for (int entry = threadIdx.x; entry < 256; entry += kGemvThreads) {
    const uint32_t pair = permute(level(entry % 16), level(entry / 16), 0x7632);
    for (int i = 0; i < 8; ++i)  // threads begin apart, for the banks
      *reinterpret_cast<uint4*>(shared + entry * 128 + (i + entry) % 8 * 16) = uint4{pair, pair, pair, pair};
  }
}

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
                                         const uint8_t* const (&tokens)[S::kTiles], const float* sums,
                                         float (&totals)[S::kTiles][4]) {
  float group[S::kTiles][4];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint4 b[S::kTiles];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) b[t] = *reinterpret_cast<const uint4*>(tokens[t] + j * 64);
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
  const int begin = gemv_first_record(args.panels, blockIdx.x);
  const int records = gemv_first_record(args.panels, blockIdx.x + 1) - begin;
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
  const GemvShared at = gemv_shared(args.panels, args.tokens, S::kTiles * 8, S::kGroup, S::kCode == Code::table);
  if constexpr (S::kCode == Code::table) fill_table(args, shared);
  wait_for_previous();
  stage_tokens<S>(args, at, shared, begin, records);
  __syncthreads();

  const Levels<S::kCode> levels(args, shared);
  const uint8_t* tokens[S::kTiles];
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)  // the results of tokens that there are not are not used
    tokens[t] = shared + at.tokens + min(t * 8 + g, args.tokens - 1) * at.token_bytes + c * 16;
  const float* sums = reinterpret_cast<const float*>(shared + at.sums) + c * 2;
  float totals[S::kTiles][4] = {};
#pragma unroll 1
  for (int k = 0; k < records; k += S::kDepth) {
#pragma unroll
    for (int i = 0; i < S::kDepth; ++i) {
      if (k + i >= records) break;
      multiply(held[i], levels, tokens, sums, totals);
      if (ahead < records) load(held[i]);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) tokens[t] += 128;
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
