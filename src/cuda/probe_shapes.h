// The shapes of the probe loops, known to device code and to the host that counts their operations. An iteration of a
// block multiplies kRows x kTokens outputs over kSteps instructions' worth of K; a thread has kResults accumulators.
#pragma once

namespace octalane::cuda {

/// Loops that drain take scales of so many groups along K in turns.
inline constexpr int kScaleGroups = 8;

/// mma.sync: each warp has 64 rows and 32 tokens of its own, 4 x 4 tiles of 16 x 8.
struct MmaShape {
  static constexpr int kThreads = 256;
  static constexpr int kRows = 64, kTokens = 32;  ///< of a warp
  static constexpr int kParts = kThreads / 32;    ///< that multiply so much
  static constexpr int kSteps = 8;
  static constexpr int kResults = kRows * kTokens / 32;
  static constexpr int kOperandBytes = kThreads * 96;
  static constexpr int kSharedBytes = 0;  ///< dynamic
  static constexpr int kScales = kRows + kTokens;
};

/// wgmma: each warpgroup has 64 rows of its own, and all have the same 128 tokens. Stages of 128 bytes of K lie in
/// shared memory, read once an iteration: [stage][128 tokens, 192 rows][128 bytes]; the scales lie behind them.
struct WgmmaShape {
  static constexpr int kThreads = 384;
  static constexpr int kRows = 64, kTokens = 128;  ///< of a warpgroup
  static constexpr int kParts = kThreads / 128;
  static constexpr int kStages = 4;
  static constexpr int kSteps = kStages * 4;
  static constexpr int kResults = kRows * kTokens / 128;
  static constexpr int kStageBytes = (kTokens + kParts * kRows) * 128;
  static constexpr int kOperandBytes = kStages * kStageBytes;
  static constexpr int kScales = kParts * kRows + kTokens;
  static constexpr int kSharedBytes = kOperandBytes + kScaleGroups * kScales * 4;
};

/// read_memory: threads of a block, blocks of a multiprocessor, loads of 16 bytes in flight in a thread.
inline constexpr int kReadThreads = 512;
inline constexpr int kReadBlocks = 2;
inline constexpr int kReadUnroll = 4;

}  // namespace octalane::cuda
