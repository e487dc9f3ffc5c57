// The shapes of the product kernels: known to device code, which is made of them, and to the host, which launches it.
#pragma once

#include "cuda/records.h"

namespace octalane::cuda {

enum class Operand { s8, e4m3, bf16 };

/// How sums leave the lane.
enum class Drain {
  row,      ///< once: y = sum * token scale * row scale
  xblock,   ///< every 256 columns, times the token's scale of the block; the row's at the end
  block,    ///< every 256 columns, times both scales of the block
  promote,  ///< fp32 sums that keep fewer bits are added to fp32 totals; both scales at the end
  none,     ///< fp32 sums are the output
};

/// Scale words as a kernel is made for them.
enum class Form {
  staged,    ///< S and B of re-encoded int8
  exponent,  ///< of E4M3: levels of E2M1 by arithmetic
  shift,     ///< of E4M3: levels by tables
  single,    ///< a scale
  pair,      ///< scale and bias
  nested,    ///< sub-scale and sub-minimum, under a pair for 256 columns
};

constexpr Form form_of(ScaleWords words) {
  switch (words) {
    case ScaleWords::staged: return Form::staged;
    case ScaleWords::exponent: return Form::exponent;
    case ScaleWords::shift: return Form::shift;
    case ScaleWords::nested: return Form::nested;
    case ScaleWords::pair_f16:
    case ScaleWords::pair_bf16: return Form::pair;
    case ScaleWords::single_f16:
    case ScaleWords::single_bf16: break;
  }
  return Form::single;
}
constexpr int word_bytes(Form form) { return form == Form::staged || form == Form::pair ? 4 : 2; }

/// A shape of the kernel. A stage is 128 bytes of K. Words: scale words of a row and record; 4 are groups of 16, where
/// the two quads of a thread have one each.
template <Operand kOperandOf, Code kCodeOf, Form kFormOf, int Words, Drain kDrainOf, int Tokens, int Warpgroups,
          int Stages>
struct GemmShape {
  static constexpr Operand kOperand = kOperandOf;
  static constexpr Code kCode = kCodeOf;
  static constexpr Form kForm = kFormOf;
  static constexpr Drain kDrain = kDrainOf;
  static constexpr int kWords = Words, kTokens = Tokens, kWarpgroups = Warpgroups, kStages = Stages;
  static constexpr bool kWide = kOperand == Operand::bf16;  ///< 16-bit operands
  static constexpr bool kE4m3 = kOperand == Operand::e4m3, kTables = kForm == Form::shift;
  static constexpr bool kBlocks = kDrain == Drain::xblock || kDrain == Drain::block;
  static constexpr bool kDrains = kBlocks || kDrain == Drain::promote;
  static constexpr bool kTokenScales = kDrain == Drain::row || kDrain == Drain::promote;  ///< at the end
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kRecords = kWide ? 1 : 2;  ///< of a warpgroup and stage
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kWords * word_bytes(kForm);
  // A stage: activations, records, super-group scales, scales of a block.
  static constexpr int kRecordsAt = kTokens * 128;
  static constexpr int kSupersAt = kRecordsAt + kWarpgroups * kRecords * kRecordBytes;
  static constexpr int kScalesAt = kSupersAt + (kForm == Form::nested ? kWarpgroups * 256 : 0);
  static constexpr int kScaleBytes = kBlocks ? (kTokens + (kDrain == Drain::block ? kRows : 0)) * 4 : 0;
  static constexpr int kStageBytes = (kScalesAt + kScaleBytes + 1023) / 1024 * 1024;
  // Behind the stages: tiles of 64 tokens by 64 rows on their way out, scales of tokens, tables of f8, barriers.
  static constexpr int kTileBytes = 64 * 64 * 2;
  static constexpr int kTokenBytes = kTokenScales ? kWarpgroups * kTokens * 4 : 0;
  static constexpr int kTailBytes = kTokenBytes + (kTables ? kShifts * 8 : 0) + 256;
  static constexpr int kMostShared = 232448;
  static constexpr int kTiles =
      kStages * kStageBytes + kWarpgroups * 2 * kTileBytes + kTailBytes <= kMostShared ? 2 : 1;
  static constexpr int kTilesAt = kStages * kStageBytes;
  static constexpr int kTokensAt = kTilesAt + kWarpgroups * kTiles * kTileBytes;
  static constexpr int kTablesAt = kTokensAt + kTokenBytes;
  static constexpr int kBarriersAt = kTablesAt + (kTables ? kShifts * 8 : 0);
  static constexpr int kSharedBytes = kBarriersAt + 256;
  static_assert(kSharedBytes <= kMostShared);
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = kWarpgroups == 1   ? 216
                                                                     : kWarpgroups == 3 ? 160
                                                                                        : 240;
};

/// The shape of the kernels of s8.group and f8.group; drains every Group columns. Tokens have a scale and a sum of
/// codes for each group (s8), or one scale, which waits for the end (E4M3).
template <Operand kOperandOf, Code kCodeOf, Form kFormOf, int Group, int Tokens, int Warpgroups, int Stages>
struct GroupShape {
  static constexpr Operand kOperand = kOperandOf;
  static constexpr bool kE4m3 = kOperand == Operand::e4m3;
  static constexpr Code kCode = kCodeOf;
  static constexpr Form kForm = kFormOf;
  static constexpr int kGroup = Group, kTokens = Tokens, kWarpgroups = Warpgroups, kStages = Stages;
  static constexpr bool kBias = kForm != Form::single;
  static_assert(!kE4m3 || !kBias);
  static constexpr int kWords = Group == 32 ? 2 : 1;                ///< scale words of a row and record
  static constexpr int kSteps = Group / 32, kGroups = 128 / Group;  ///< instructions of a group, groups of a stage
  static constexpr bool kWide = false;
  static constexpr int kRecords = 2;                 ///< of a warpgroup and stage
  static constexpr int kSets = kGroups > 1 ? 2 : 1;  ///< of sums: one is drained while the other is filled
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kWords * word_bytes(kForm);
  // A stage: activations, records, super-group scales, scales and sums of tokens.
  static constexpr int kRecordsAt = kTokens * 128;
  static constexpr int kSupersAt = kRecordsAt + kWarpgroups * 2 * kRecordBytes;
  static constexpr int kScalesAt = kSupersAt + (kForm == Form::nested ? kWarpgroups * 256 : 0);
  static constexpr int kScaleBytes = kE4m3 ? 0 : kGroups * kTokens * 4 * (kBias ? 2 : 1);
  static constexpr int kStageBytes = (kScalesAt + kScaleBytes + 1023) / 1024 * 1024;
  static constexpr int kTileBytes = 64 * 64 * 2, kTiles = 1;
  static constexpr int kTilesAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kTilesAt + kWarpgroups * kTiles * kTileBytes;
  static constexpr int kSharedBytes = kBarriersAt + 256;
  static_assert(kSharedBytes <= 232448);
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
};

/// The shape of s8.nested's kernel: groups of 32 under 256 columns. Minima: weights have some.
template <Code kCodeOf, bool Minima, int Tokens, int Warpgroups, int Stages>
struct NestedShape {
  static constexpr Operand kOperand = Operand::s8;
  static constexpr Code kCode = kCodeOf;
  static constexpr Form kForm = Form::nested;
  static constexpr bool kMinima = Minima;
  static constexpr int kTokens = Tokens, kWarpgroups = Warpgroups, kStages = Stages, kWords = 2;
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kWords * 2;
  // A stage: activations, records, super-group scales, scales of tokens, their sums as operands.
  static constexpr int kRecordsAt = kTokens * 128;
  static constexpr int kSupersAt = kRecordsAt + kWarpgroups * 2 * kRecordBytes;
  static constexpr int kScalesAt = kSupersAt + kWarpgroups * 256;
  static constexpr int kMinimaAt = kScalesAt + kTokens * 4;
  static constexpr int kMinimaBytes = kMinima ? kTokens * 32 : 0;
  static constexpr int kScaleBytes = kTokens * 4 + kMinimaBytes;
  static constexpr bool kWide = false;
  static constexpr int kRecords = 2;  ///< of a warpgroup and stage
  static constexpr int kStageBytes = (kMinimaAt + kMinimaBytes + 1023) / 1024 * 1024;
  static constexpr int kTileBytes = 64 * 64 * 2, kTiles = 1;
  static constexpr int kTilesAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kTilesAt + kWarpgroups * kTiles * kTileBytes;
  static constexpr int kSharedBytes = kBarriersAt + 256;
  static_assert(kSharedBytes <= 232448);
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = kWarpgroups == 3 ? 160 : 240;
};

}  // namespace octalane::cuda
