// What the kernels that route tokens to experts are launched with. Known to host and device code.
#pragma once

#include "cuda/gemm_args.h"

namespace octalane::cuda {

inline constexpr int kMostExperts = 512;
inline constexpr int kRouteThreads = 1024, kRouteWarps = kRouteThreads / 32;
inline constexpr int kCombineThreads = 256;
inline constexpr int kCombineColumns = 4 * kCombineThreads;  ///< of a block

/// Tables of tiles are made for tiles of 64, 128, 192 and 256 tokens: all that product kernels have.
inline constexpr int kTileSizes = 4;
constexpr int tokens_of_tile(int size) { return (size + 1) * kSlotUnit; }

/// Slots of one expert, from `begin` to before `end`.
struct ExpertRange {
  int32_t begin, end;
};

struct RouteCounts {
  int32_t tiles[kTileSizes];  ///< entries of each table
  int32_t slots;              ///< in use, with the padding of every expert
  int32_t left_out;           ///< choices of experts that there are not
};

/// One block of kRouteThreads threads, route_shared_bytes() of dynamic shared memory. Kernel: route.
/// Slots: the choices of expert 0 in their order, padded to a multiple of kSlotUnit, then those of expert 1, ...
struct RouteArgs {
  const int32_t* expert;  ///< [choices]: those of token 0, then of token 1, ...; any number
  int32_t* source;        ///< [slots]: token, or -1
  int32_t* slot_of;       ///< [choices]: slot, or -1
  ExpertRange* ranges;    ///< [experts]
  RouteCounts* counts;
  ExpertTile* tiles[kTileSizes];
  int32_t choices, top_k, experts, slots;
};

/// Choices of each expert by warp; of all; and where each begins, in slots and in every table.
constexpr int route_shared_bytes(int experts) { return (kRouteWarps + 1 + 1 + kTileSizes) * experts * 4; }

/// y[token] = sum of weight[token][j] * x[slot_of[token][j]] over j in order: fp32, each step a fused multiply-add,
/// from 0; choices without a slot are left out. A block has kCombineColumns columns of a token, blocks of a token
/// follow each other. Kernels: combine_<x>_<y>, f32 or bf16.
struct CombineArgs {
  const void* x;  ///< [slots][rows]
  void* y;        ///< [tokens][rows]
  const int32_t* slot_of;
  const float* weight;
  int64_t x_stride, y_stride;  ///< elements
  int32_t top_k, rows;
};

}  // namespace octalane::cuda
