// How a product is cut: panels of decoded weights that stay in a cache while all tokens pass by. Shared by the kernels
// and by the scratch sizes of the kernel table, so built for any machine.
#pragma once

#include <cstdint>

#include "core/activations_view.h"
#include "core/inline.h"
#include "kernels/amx/kernels.h"

namespace octalane::amx {

inline constexpr int kStepTile = 1024;                ///< bytes of one matrix tile
inline constexpr int kStepPair = 2 * kStepTile;       ///< one step of 32 tokens, or of 32 weight rows
inline constexpr int kSlabSteps = 16;                 ///< steps between two visits to memory of an accumulator
inline constexpr int kSlab = kSlabSteps * kStepPair;  ///< 32 KiB: what L1 holds beside a stream
inline constexpr int kBlock = 4 * kStepTile;          ///< accumulators of 32 tokens x 32 rows

/// Up to this many tokens a slab is decoded into L1 and used by all tokens at once; beyond, a panel is decoded into L2.
inline constexpr int64_t kSlabTokens = 128;

struct Panels {
  int64_t strips;  ///< of 32 tokens
  int64_t steps;   ///< along all of K
  int64_t pairs;   ///< of tiles (32 weight rows) in a panel
  int64_t depth;   ///< steps in a panel

  OCTALANE_INLINE constexpr int64_t slabs() const { return (depth + kSlabSteps - 1) / kSlabSteps; }
  OCTALANE_INLINE constexpr bool whole() const { return depth == steps; }
  OCTALANE_INLINE constexpr int64_t panel_bytes() const { return slabs() * pairs * kSlab; }
  /// Accumulators wait in memory between panels along K, or only between slabs of one strip.
  OCTALANE_INLINE constexpr int64_t accumulator_bytes() const { return (whole() ? 1 : strips) * pairs * kBlock; }
  OCTALANE_INLINE constexpr int64_t staging_bytes() const { return 2 * pairs * kBlock; }
};

OCTALANE_INLINE constexpr Panels cut(int64_t tokens, int64_t steps, int64_t most_pairs, int64_t most_depth) {
  const bool slab = tokens <= kSlabTokens;
  const int64_t depth = slab ? kSlabSteps : most_depth;
  return {.strips = (tokens + kStripTokens - 1) / kStripTokens,
          .steps = steps,
          .pairs = slab ? 1 : most_pairs,
          .depth = steps < depth ? steps : depth};
}

// Panels of at most 1 MiB, of which half a L2 is left to activations: see docs/results for the sizes that lost.
inline constexpr int kBf16Pairs = 12, kBf16Depth = 32;
inline constexpr int kRowPairs = 8, kRowDepth = 64;
inline constexpr int kBlockPairs = 6, kBlockDepth = 64;

OCTALANE_INLINE constexpr Panels bf16_panels(int64_t tokens, int64_t padded_cols) {
  return cut(tokens, padded_cols / 32, kBf16Pairs, kBf16Depth);
}
OCTALANE_INLINE constexpr Panels s8_row_panels(int64_t tokens, int64_t padded_cols) {
  return cut(tokens, (padded_cols + 63) / 64, kRowPairs, kRowDepth);
}
OCTALANE_INLINE constexpr Panels s8_block_panels(int64_t tokens, int64_t padded_cols) {
  return cut(tokens, (padded_cols + 63) / 64, kBlockPairs, kBlockDepth);
}

/// The same for s8.group, whose panels are made of groups: [slab][pair][group of the slab].
struct GroupCut {
  int group;       ///< columns
  int64_t strips;  ///< of 32 tokens
  int64_t groups;  ///< along all of K
  int64_t pairs;   ///< of tiles in a panel
  int64_t depth;   ///< groups in a panel
  int64_t slab;    ///< groups whose tokens, 32 KiB a strip, L1 holds

  OCTALANE_INLINE constexpr int chunk() const { return group < kStepBytes ? group : kStepBytes; }  ///< of one product
  OCTALANE_INLINE constexpr bool whole() const { return depth == groups; }
  /// Levels of 32 rows, and their fp32 scales and biases.
  OCTALANE_INLINE constexpr int64_t record() const { return kPairRows * (group + 2 * 4); }
  OCTALANE_INLINE constexpr int64_t panel_bytes() const { return (depth + slab - 1) / slab * slab * pairs * record(); }
  OCTALANE_INLINE constexpr int64_t accumulator_bytes() const { return (whole() ? 1 : strips) * pairs * kBlock; }
  OCTALANE_INLINE constexpr int64_t staging_bytes() const { return 2 * pairs * kBlock; }
  OCTALANE_INLINE constexpr int64_t token_bytes() const { return depth * 2 * kStripTokens * 4; }
  OCTALANE_INLINE constexpr int64_t bytes() const {
    return panel_bytes() + accumulator_bytes() + 2 * kBlock + staging_bytes() + token_bytes();
  }
};

OCTALANE_INLINE constexpr GroupCut s8_group_cut(int64_t tokens, int64_t padded_cols, int group) {
  constexpr int64_t pairs = 4, depth_cols = 4096, slab_cols = kSlabSteps * kStepBytes;
  const int64_t groups = padded_cols / group, depth = depth_cols / group;
  return {.group = group,
          .strips = (tokens + kStripTokens - 1) / kStripTokens,
          .groups = groups,
          .pairs = tokens <= kSlabTokens ? 1 : pairs,
          .depth = groups < depth ? groups : depth,
          .slab = slab_cols / group};
}

}  // namespace octalane::amx
