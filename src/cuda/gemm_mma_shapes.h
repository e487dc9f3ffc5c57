// The shapes of the product kernels of mma.sync, for devices without wgmma: known to device code, which is made of
// them, and to the host, which launches it.
#pragma once

#include "cuda/gemm_shapes.h"

namespace octalane::cuda {

/// How sums leave the lane.
enum class MmaDrain {
  none,    ///< bf16: fp32 sums are the output
  row,     ///< s8.row
  xblock,  ///< s8.xblock: every 256 columns
  block,   ///< s8.block: likewise
  group,   ///< s8.group: every group of columns
  nested,  ///< s8.nested: groups of 32 as integers, every 256 columns
};

/// A tile is 128 rows by 64 or 128 tokens, a stage 128 bytes of K. A warp has 32 rows, and all tokens or, where totals
/// stand beside sums, 64 of them. Words: scale words of a row and record; where a kernel serves 1 and 2, 2.
template <MmaDrain kDrainOf, Code kCodeOf, Form kFormOf, int Words, int Group, int Tokens>
struct GemmMmaShape {
  static constexpr MmaDrain kDrain = kDrainOf;
  static constexpr Code kCode = kCodeOf;
  static constexpr Form kForm = kFormOf;
  static constexpr int kWords = Words, kTokens = Tokens;
  static constexpr int kGroup = Group;                     ///< s8.group; else 0
  static constexpr bool kWide = kDrain == MmaDrain::none;  ///< 16-bit operands
  static constexpr bool kBias = kForm == Form::pair || kForm == Form::nested;
  static constexpr bool kBlocks = kDrain == MmaDrain::xblock || kDrain == MmaDrain::block;
  static constexpr bool kLasting = kBlocks || kDrain == MmaDrain::nested;  ///< sums that totals stand beside for long
  static constexpr bool kOutput = kWide || kDrain == MmaDrain::row;        ///< no totals
  static constexpr int kRows = 128;
  static constexpr int kWarpTokens = kOutput ? kTokens : 64;
  static constexpr int kThreads = kRows * (kTokens / kWarpTokens);
  /// Blocks of a multiprocessor that registers and, on sm_80 (164 KiB), shared memory suffice for.
  static constexpr int kResident = kThreads == 256                                          ? 1
                                   : kWarpTokens == 128 || kLasting                         ? 2
                                   : kGroup == 0 || (kGroup == 32 && kCode == Code::nibble) ? 3
                                                                                            : 2;
  static constexpr int kRecords = kWide ? 1 : 2;  ///< of 64 rows and a stage
  static constexpr int kCodeBytes = kRecordRows * kRecordCols * code_bits(kCode) / 8;
  static constexpr int kRecordBytes = kCodeBytes + kRecordRows * kWords * word_bytes(kForm);  ///< at most
  // A stage: activations, records, super-group scales, scales and sums of tokens, scales of rows.
  static constexpr int kBlockBytes = kRecords * kRecordBytes;  ///< of 64 rows
  static constexpr int kRecordsAt = kTokens * 128;
  static constexpr int kSupersAt = kRecordsAt + kRows / 64 * kBlockBytes;
  static constexpr int kScalesAt = kSupersAt + (kForm == Form::nested ? kRows * 4 : 0);
  static constexpr int kGroups = kDrain == MmaDrain::group ? 128 / kGroup : kLasting ? 1 : 0;  ///< a stage
  static constexpr int kSumsAt = kScalesAt + kGroups * kTokens * 4;
  static constexpr int kSumBytes = kDrain == MmaDrain::nested           ? kTokens * 32
                                   : kDrain == MmaDrain::group && kBias ? kGroups * kTokens * 4
                                                                        : 0;
  static constexpr int kRowScalesAt = kSumsAt + kSumBytes;
  static constexpr int kStageBytes = kRowScalesAt + (kDrain == MmaDrain::block ? kRows * 4 : 0);
  static_assert(kStageBytes % 128 == 0);
  static constexpr int kMostShared = (kResident == 3 ? 53 : 80) * 1024, kFit = kMostShared / kStageBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kSharedBytes <= 99 * 1024);  // of sm_86 and sm_89
};

}  // namespace octalane::cuda
