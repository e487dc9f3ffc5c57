// y[tokens, rows] = x W^T with weights at 4 or 8 bits, on wgmma: weights are its 64-row left operand, decoded into
// registers, tokens its right one, read from shared memory. One warp copies: activations as swizzled tiles, records as
// they are. Each consumer warpgroup has 64 rows; decoding of the next 64 bytes of K goes on beside the multiplication
// of these.
#pragma once

#include "cuda/device/async.cuh"
#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"
#include "cuda/device/wgmma_registers.cuh"
#include "cuda/gemm_shapes.h"

namespace octalane::cuda {

template <Operand kOperand>
struct OperandType;
template <>
struct OperandType<Operand::s8> {
  using Type = S8;
};
template <>
struct OperandType<Operand::e4m3> {
  using Type = E4m3;
};
template <>
struct OperandType<Operand::bf16> {
  using Type = Bf16;
};

/// A number that the compiler knows, for a lambda.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};
using False = Constant<0>;
using True = Constant<1>;

/// Stages go round: the slot, and the parity of its barriers.
template <int Stages>
struct Slot {
  int index = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++index == Stages) index = 0, parity ^= 1;
  }
};

/// The tile of tokens and rows with this number: tokens run fastest, so that rows stay in L2. The last
/// rows may be met twice: they get the same values.
struct TilePlace {
  int token, row;
  __device__ __forceinline__ TilePlace(int token_of, int row_of) : token(token_of), row(row_of) {}
  __device__ __forceinline__ TilePlace(const GemmArgs& args, int tile, int tokens, int rows) {
    const int tiles = (args.tokens + tokens - 1) / tokens;
    token = tile % tiles * tokens;
    row = min(tile / tiles * rows, args.padded_rows - rows);
  }
};
__device__ __forceinline__ int tiles_of(const GemmArgs& args, int tokens, int rows) {
  return (args.tokens + tokens - 1) / tokens * ((args.rows + rows - 1) / rows);
}

/// The same where there may be experts.
template <class S>
__device__ __forceinline__ int tiles_of(const GemmArgs& args) {
  if (args.experts == nullptr) return tiles_of(args, S::kTokens, S::kRows);
  return *args.expert_tiles * ((args.rows + S::kRows - 1) / S::kRows);
}
template <class S>
__device__ __forceinline__ TilePlace place_of(const GemmArgs& args, int tile) {
  if (args.experts == nullptr) return TilePlace(args, tile, S::kTokens, S::kRows);
  const int row_tiles = (args.rows + S::kRows - 1) / S::kRows;
  const ExpertPlace place =
      expert_place(args.experts[tile / row_tiles], tile, S::kTokens, S::kRows, row_tiles, args.expert_rows);
  return {place.token, place.record_row};
}

/// Where outputs of a tile go: tokens from `token` on and before `end`. Found again at the end of the tile, so that no
/// register waits for it.
struct OutputPlace {
  int token, end, row, record_row;
};
template <class S>
__device__ __forceinline__ OutputPlace output_of(const GemmArgs& args, int tile) {
  const auto same = static_cast<int>(kept(tile));
  const TilePlace place = place_of<S>(args, same);
  if (args.experts == nullptr) return {place.token, args.tokens, place.row, place.row};
  const ExpertTile& entry = args.experts[same / ((args.rows + S::kRows - 1) / S::kRows)];
  return {place.token, entry.end, place.row - entry.expert * args.expert_rows, place.row};
}

/// The copying thread: activations and records of every stage, super-group scales where they are nested, and whatever
/// else copy_scales(place, k, stage, full) copies of stage k, kScaleBytes in all.
template <class S, class CopyScales>
__device__ __forceinline__ void produce(const GemmArgs& args, uint32_t base, CopyScales copy_scales) {
  Slot<S::kStages> slot;
  const int stages = args.panels * (S::kWide ? 2 : 1), tiles = tiles_of<S>(args);
  const int supers = (args.panels + 1) / 2;
  constexpr bool kNested = S::kForm == Form::nested;
  constexpr int kRecordBytes = S::kRecords * S::kRecordBytes;
  constexpr int kBytes = S::kTokens * 128 + S::kWarpgroups * (kRecordBytes + (kNested ? 256 : 0)) + S::kScaleBytes;
  const int64_t row_bytes = static_cast<int64_t>(args.panels) * 2 * S::kRecordBytes;  // of 64 rows
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TilePlace place = place_of<S>(args, tile);
#pragma unroll 1
    for (int k = 0; k < stages; ++k, slot.advance()) {
      const uint32_t full = base + S::kBarriersAt + slot.index * 16, stage = base + slot.index * S::kStageBytes;
      barrier_wait(full + 8, slot.parity ^ 1);
      barrier_expect(full, kBytes);
      copy_tile(stage, args.x, k * (S::kWide ? 64 : 128), place.token, full);
#pragma unroll
      for (int g = 0; g < S::kWarpgroups; ++g) {
        const int block = place.row / 64 + g;
        copy_bytes(stage + S::kRecordsAt + g * kRecordBytes,
                   args.records + block * row_bytes + static_cast<int64_t>(k) * kRecordBytes, kRecordBytes, full);
        if constexpr (kNested)
          copy_bytes(stage + S::kSupersAt + g * 256,
                     args.supers + (static_cast<int64_t>(block) * supers + k / (S::kWide ? 4 : 2)) * 64, 256, full);
      }
      copy_scales(place, k, stage, full);
    }
  }
}

template <class S>
__device__ __forceinline__ void produce(const GemmArgs& args, uint32_t base) {
  produce<S>(args, base, [&](const TilePlace& place, int k, uint32_t stage, uint32_t full) {
    if constexpr (S::kBlocks) {
      copy_bytes(stage + S::kScalesAt,
                 args.token_scales + static_cast<int64_t>(k / 2) * args.padded_tokens + place.token, S::kTokens * 4,
                 full);
      if constexpr (S::kDrain == Drain::block)
        copy_bytes(stage + S::kScalesAt + S::kTokens * 4,
                   args.weight_scales + static_cast<int64_t>(k / 2) * args.padded_rows + place.row, S::kRows * 4, full);
    }
  });
}

/// What a consumer thread holds of a stage, and how it becomes operands. Unit u, of 64 bytes of K, has two: of the
/// columns j = 0, 1 of record u, or (16-bit operands) of the two quads of columns u.
template <class S>
struct StageCodes {
  Eight<S::kCode> codes[S::kRecords][2][2];   // [record][j][h]
  uint32_t words[S::kRecords][2][S::kWords];  // [record][h]; 16-bit words in the halves of a register where they pair
  Scale supers[2];                            ///< nested

  /// Where a thread's codes and rows begin in a stage.
  struct Places {
    uint32_t codes, words, supers;
    __device__ __forceinline__ Places(int group, int thread) {
      const int row = thread / 32 * 16 + thread % 32 / 4,
                records = S::kRecordsAt + group * S::kRecords * S::kRecordBytes;
      codes = kept(records + thread * 16);
      words = kept(records + S::kCodeBytes + row * kRowBytes);
      supers = kept(S::kSupersAt + group * 256 + row * 4);
    }
  };
  static constexpr int kRowBytes = S::kWords * word_bytes(S::kForm);

  __device__ __forceinline__ void load(uint32_t stage, const Places& places) {
#pragma unroll
    for (int r = 0; r < S::kRecords; ++r) {
      load_codes(stage + places.codes + r * S::kRecordBytes, codes[r]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t at = stage + places.words + r * S::kRecordBytes + h * 8 * kRowBytes;
        uint32_t(&to)[S::kWords] = words[r][h];
        if constexpr (kRowBytes == 2) {
          to[0] = shared_16(at);
        } else if constexpr (kRowBytes == 4 && S::kWords == 1) {
          to[0] = shared_32(at);
        } else if constexpr (kRowBytes == 4) {
          const uint32_t both = shared_32(at);
          to[0] = both & 0xffff, to[1] = both >> 16;
        } else if constexpr (S::kWords == 2) {
          const uint2 v = shared_64(at);
          to[0] = v.x, to[1] = v.y;
        } else if constexpr (kRowBytes == 8) {
          const uint2 v = shared_64(at);
          to[0] = v.x & 0xffff, to[1] = v.x >> 16, to[2] = v.y & 0xffff, to[3] = v.y >> 16;
        } else {
          const uint4 v = shared_128(at);
          to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        }
      }
    }
    if constexpr (S::kForm == Form::nested) {
#pragma unroll
      for (int h = 0; h < 2; ++h) supers[h] = super_scale(shared_32(stage + places.supers + h * 32));
    }
  }

  /// The scale word of quad q of columns j.
  __device__ __forceinline__ uint32_t word(int r, int j, int h, int q) const {
    return words[r][h][S::kWords == 4 ? 2 * j + q : S::kWords == 2 ? j : 0];
  }

  __device__ __forceinline__ void operands(const GemmArgs& args, uint32_t tables, int u, uint32_t (&a)[2][4]) const {
    const uint4 table{args.table[0], args.table[1], args.table[2], args.table[3]};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (S::kWide) {
        const bool is_bf16 = args.bf16_scales != 0;
        Scale scale = exact_scale<S::kForm>(word(0, u, h, 0), is_bf16, supers[h]);
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          if (S::kWords == 4 && q == 1) scale = exact_scale<S::kForm>(word(0, u, h, 1), is_bf16, supers[h]);
          float w[4];
          if constexpr (S::kCode == Code::e4m3)
            weights_of_e4m3<S::kForm != Form::single>(codes[0][u][h].quad(q, table), scale, w);
          else
            weights_of<S::kForm != Form::single, S::kForm == Form::nested && S::kCode == Code::table>(
                codes[0][u][h].quad(q, table), scale, args, w);
          a[q][h] = pack_bf16(w[0], w[1]);
          a[q][h + 2] = pack_bf16(w[2], w[3]);
        }
      } else if constexpr (S::kE4m3) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint2 magnitudes;
          if constexpr (S::kTables)
            magnitudes = shared_64(tables + word(u, j, h, 0));
          else
            magnitudes = e2m1_magnitudes(word(u, j, h, 0));
          a[j][h] = e4m3_quad(codes[u][j][h].word[0], 0, magnitudes);
          a[j][h + 2] = e4m3_quad(codes[u][j][h].word[0], 1, magnitudes);
        }
      } else {
        StagedScale scale(word(u, 0, h, 0), args.minus_pivots);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (S::kWords == 2 && j == 1) scale = StagedScale(word(u, 1, h, 0), args.minus_pivots);
#pragma unroll
          for (int q = 0; q < 2; ++q) a[j][h + 2 * q] = restage(codes[u][j][h].quad(q, table), scale);
        }
      }
    }
  }
};

/// Writes a warpgroup's 64 rows of outputs: get(j, values) gives, for e = 0..3, that of row `lane / 4 + 8 * (e / 2)` of
/// the warp's 16, token 8 * j + 2 * (lane % 4) + e % 2.
template <int Tokens, int Tiles, class Get>
__device__ __forceinline__ void write_outputs(const GemmArgs& args, const OutputPlace& place, int group, uint32_t tiles,
                                              Get get) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  if (args.y_f32 != nullptr) {
    const int row = place.row + group * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < Tokens / 8; ++j) {
      float values[4];
      get(j, values);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = place.token + 8 * j + 2 * (lane % 4) + e % 2, n = row + 8 * (e / 2);
        if (token < place.end && n < args.rows) args.y_f32[token * args.y_stride + n] = values[e];
      }
    }
    return;
  }
#pragma unroll
  for (int p = 0; p < Tokens / 64; ++p) {
    const uint32_t tile = tiles + p % Tiles * 8192;
    uint32_t pairs[8][2];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float values[4];
      get(p * 8 + j, values);
      pairs[j][0] = pack_bf16(values[0], values[1]);
      pairs[j][1] = pack_bf16(values[2], values[3]);
    }
    if (thread == 0) stores_read<Tiles - 1>();
    warpgroup_sync(2 + group);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {  // lanes 0-7, 8-15: rows 0-7, 8-15 of tokens 8 j; 16-31: of the next 8 tokens
      const int token = 8 * (j + lane / 16) + lane % 8, chunk = warp * 2 + lane / 8 % 2;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       tile + token * 128 + ((chunk ^ (token & 7)) * 16)),
                   "r"(pairs[j][0]), "r"(pairs[j][1]), "r"(pairs[j + 1][0]), "r"(pairs[j + 1][1])
                   : "memory");
    }
    async_fence();
    warpgroup_sync(2 + group);
    if (thread == 0) {
      // Boxes past the end are another's. Their place in the count of stores is kept.
      if (place.token + p * 64 < place.end) store_tile(args.y, place.row + group * 64, place.token + p * 64, tile);
      stores_commit();
    }
  }
}

/// The same of totals that are the outputs.
template <class S>
__device__ __forceinline__ void write_totals(const GemmArgs& args, const OutputPlace& place, int group, uint32_t base,
                                             const float (&totals)[S::kTokens / 2]) {
  write_outputs<S::kTokens, S::kTiles>(args, place, group, base + S::kTilesAt + group * S::kTiles * S::kTileBytes,
                                       [&](int j, float(&values)[4]) {
#pragma unroll
                                         for (int e = 0; e < 4; ++e) values[e] = totals[4 * j + e];
                                       });
}

template <class S>
__device__ __forceinline__ void consume(const GemmArgs& args, uint8_t* shared, uint32_t base) {
  using Type = typename OperandType<S::kOperand>::Type;
  constexpr int kSums = S::kTokens / 2;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int stages = args.panels * (S::kWide ? 2 : 1), tiles = tiles_of<S>(args);
  const int block = S::kDrain == Drain::promote ? args.promote : 2;  // stages from drain to drain
  const uint32_t tables = base + S::kTablesAt;
  // Every warp frees a stage for itself: that covers its own reads of codes and scales.
  const auto release = [&](int index) {
    __syncwarp();
    if (lane == 0) barrier_arrive(base + S::kBarriersAt + index * 16 + 8);
  };
  const auto full = [&](int index) { return base + S::kBarriersAt + index * 16; };
  const typename StageCodes<S>::Places places(group, thread);
  Slot<S::kStages> slot;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const TilePlace place = place_of<S>(args, tile);
    typename Type::Sum sums[kSums];
    float totals[S::kDrains ? kSums : 1];
    if constexpr (S::kDrains) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = 0;
    }
    // Scales of tokens pass through a register, so that no one waits for them.
    float token_scale[S::kTokens / 128 + 1];
    if constexpr (S::kTokenScales) {
#pragma unroll
      for (int i = 0; i * 128 < S::kTokens; ++i) {
        const int token = i * 128 + thread;
        token_scale[i] = token < S::kTokens ? args.token_scales[place.token + token] : 0;
      }
    }
    int fresh = 1;
    int until = block;
    uint32_t a[2][2][4];
    StageCodes<S> codes;
    uint32_t stage = base + slot.index * S::kStageBytes;
    int held = -1;  // the slot that the last products read

    const auto drain = [&](int index) {
      if constexpr (S::kDrain == Drain::promote) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) totals[i] += sums[i];
      } else if constexpr (S::kBlocks) {
        const auto* scales = reinterpret_cast<const float*>(shared + index * S::kStageBytes + S::kScalesAt);
        float row_scale[2] = {1, 1};
        if constexpr (S::kDrain == Drain::block) {
          const float* rows = scales + S::kTokens + group * 64 + warp * 16 + lane / 4;
          row_scale[0] = rows[0], row_scale[1] = rows[8];
        }
#pragma unroll
        for (int j = 0; j < S::kTokens / 8; ++j) {
          const float2 token = *reinterpret_cast<const float2*>(scales + 8 * j + 2 * (lane % 4));
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float value = static_cast<float>(sums[4 * j + e]);
            if constexpr (S::kDrain == Drain::block) value *= row_scale[e / 2];
            totals[4 * j + e] = fmaf(value, e % 2 ? token.y : token.x, totals[4 * j + e]);
          }
        }
      }
    };
    // Operands are complete before the first instruction: nothing is to stand between the two.
    const auto issue = [&](uint32_t(&operands)[2][4], uint32_t at, int u) {
      const uint32_t tokens = (at >> 4) + 4 * u;  // 16 bytes a step
      pin_all(operands[0]);
      pin_all(operands[1]);
      wgmma_fence();
      wgmma(Type{}, sums, operands[0], descriptor_of(tokens), fresh);
      fresh = 0;
      wgmma(Type{}, sums, operands[1], descriptor_of(tokens + 2), 0);
      wgmma_commit();
    };
    // One stage; its first unit is decoded. The next stage's barrier is tried early, and its codes are read while this
    // stage's are multiplied.
    const auto step = [&](auto last) {
      issue(a[0], stage, 0);
      wgmma_wait<1>();
      if (held >= 0) release(held);
      const uint32_t current = stage;
      const int index = slot.index;
      slot.advance();
      stage = slot.index == 0 ? base : stage + S::kStageBytes;
      bool ready = true;
      if constexpr (!last.value) ready = barrier_try(full(slot.index), slot.parity);
      codes.operands(args, tables, 1, a[1]);
      if constexpr (!last.value) {
        if (!ready) barrier_wait(full(slot.index), slot.parity);
        codes.load(stage, places);
      }
      issue(a[1], current, 1);
      wgmma_wait<1>();
      if constexpr (!last.value) codes.operands(args, tables, 0, a[0]);
      held = index;
      if constexpr (S::kDrains) {
        if (--until == 0 || last.value) {
          wgmma_wait<0>();
          pin_all(sums);
          drain(index);
          release(index);
          held = -1;
          fresh = 1;
          until = block;
        }
      }
    };
    barrier_wait(full(slot.index), slot.parity);
    codes.load(stage, places);
    codes.operands(args, tables, 0, a[0]);
#pragma unroll 1
    for (int k = 0; k < stages - 1; ++k) step(False{});
    step(True{});
    wgmma_wait<0>();
    pin_all(sums);
    if (held >= 0) release(held);

    const OutputPlace out = output_of<S>(args, tile);
    float row_scale[2] = {1, 1};
    if constexpr (S::kTokenScales || S::kDrain == Drain::xblock) {
      const float* rows = args.weight_scales + out.record_row + group * 64 + warp * 16 + lane / 4;
      row_scale[0] = rows[0], row_scale[1] = rows[8];
    }
    float* const token_scales = reinterpret_cast<float*>(shared + S::kTokensAt) + group * S::kTokens;
    if constexpr (S::kTokenScales) {
#pragma unroll
      for (int i = 0; i * 128 < S::kTokens; ++i) {
        if (i * 128 + thread < S::kTokens) token_scales[i * 128 + thread] = token_scale[i];
      }
      warpgroup_sync(2 + group);
    }
    write_outputs<S::kTokens, S::kTiles>(
        args, out, group, base + S::kTilesAt + group * S::kTiles * S::kTileBytes, [&](int j, float(&values)[4]) {
          float2 scales{};
          if constexpr (S::kTokenScales) {
            scales = *reinterpret_cast<const float2*>(token_scales + 8 * j + 2 * (lane % 4));
          }
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float token = e % 2 ? scales.y : scales.x;
            if constexpr (S::kDrain == Drain::none) values[e] = sums[4 * j + e];
            if constexpr (S::kDrain == Drain::block) values[e] = totals[4 * j + e];
            if constexpr (S::kDrain == Drain::xblock) values[e] = totals[4 * j + e] * row_scale[e / 2];
            if constexpr (S::kDrain == Drain::promote) values[e] = totals[4 * j + e] * token * row_scale[e / 2];
            if constexpr (S::kDrain == Drain::row) {
              values[e] = static_cast<float>(sums[4 * j + e]) * token * row_scale[e / 2];
            }
          }
        });
    if constexpr (S::kTokenScales) warpgroup_sync(2 + group);  // before the next tile's scales
  }
  stores_done();
}

/// Barriers, then the roles: one thread that copies, and warpgroups that multiply.
template <class S, class Produce, class Consume>
__device__ __forceinline__ void run_roles(const GemmArgs& args, Produce produce, Consume consume) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t base = kept(shared_address(shared));
  const BlockClocks begin = BlockClocks::now();
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(base + S::kBarriersAt + s * 16, 1);
      barrier_init(base + S::kBarriersAt + s * 16 + 8, S::kWarpgroups * 4);
    }
    barrier_init_fence();
  }
  if constexpr (S::kForm == Form::shift) {
    if (threadIdx.x < kShifts) {
      *reinterpret_cast<uint64_t*>(shared + S::kTablesAt + threadIdx.x * 8) = args.shifted[threadIdx.x];
    }
  }
  __syncthreads();
  if (threadIdx.x >= S::kWarpgroups * 128) {
    fewer_registers<S::kProducerRegisters>();
    if (threadIdx.x == S::kWarpgroups * 128) produce(base);
  } else {
    more_registers<S::kConsumerRegisters>();
    consume(shared, base);
    if (args.clocks != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
      const BlockClocks end = BlockClocks::now();
      args.clocks[0] = end.clocks - begin.clocks;
      args.clocks[1] = end.nanoseconds - begin.nanoseconds;
    }
  }
}

template <class S>
__device__ __forceinline__ void gemm(const GemmArgs& args) {
  run_roles<S>(
      args, [&](uint32_t base) { produce<S>(args, base); },
      [&](uint8_t* shared, uint32_t base) { consume<S>(args, shared, base); });
}

}  // namespace octalane::cuda
