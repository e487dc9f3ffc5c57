// The shapes of the product kernels for codebooks: known to device code, which is made of them, and to the host.
#pragma once

#include "cuda/additive_args.h"
#include "cuda/records.h"

namespace octalane::cuda {

/// A stage is 64 columns. TensorBooks: how many of the books have their binary16 widened by the tensor cores (exactly:
/// they are multiplied by the identity), in place of an instruction for each value.
template <int Books, int Vector, int Tokens, int Warpgroups, int Stages, int TensorBooks>
struct AdditiveShape {
  static_assert((Books == 1 || Books == 2) && (Vector == 4 || Vector == 8) && TensorBooks <= Books);
  static_assert(Stages >= 3);  // one is multiplied, one decoded, one freed
  static constexpr int kBooks = Books, kVector = Vector, kTokens = Tokens, kWarpgroups = Warpgroups, kStages = Stages;
  static constexpr int kTensorBooks = TensorBooks;
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kThreadBytes = code_bytes_of_thread(kBooks, kVector);
  static constexpr int kCodeBytes = 128 * kThreadBytes;
  // A stage: activations, records, scales of at most two groups.
  static constexpr int kCodesAt = kTokens * 128;
  static constexpr int kScalesAt = kCodesAt + kWarpgroups * kCodeBytes;
  static constexpr int kStageBytes = (kScalesAt + kWarpgroups * 256 + 1023) / 1024 * 1024;
  // Codewords, 256 bytes for each code: 128 for a book, its codeword 8 or 16 times, so that the lanes that are served
  // together never meet in a bank.
  static constexpr int kTableAt = kStages * kStageBytes, kTableBytes = kBookCodes * 256;
  // Tiles of 64 tokens by 64 rows on their way out, barriers: full and free of each stage, then two of the cluster.
  static constexpr int kTileBytes = 64 * 64 * 2, kTiles = kTokens < 64 ? 0 : 1;
  static constexpr int kTilesAt = kTableAt + kTableBytes;
  static constexpr int kBarriersAt = kTilesAt + kWarpgroups * kTiles * kTileBytes;
  static constexpr int kSharedBytes = kBarriersAt + 256;
  static_assert(kSharedBytes <= 232448 && kStages * 16 + 16 <= 256);
  /// What a block gets from the other of its cluster lies where the stages were.
  static_assert(kWarpgroups * kTokens * 128 <= kStages * kStageBytes);
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = kWarpgroups == 1 ? 216 : 240;
};

}  // namespace octalane::cuda
