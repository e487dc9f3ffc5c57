// Packed weights of codebooks -> codes, scales and codebooks as cuda/additive_args.h has them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/packed_view.h"
#include "core/status.h"

namespace octalane::cuda {

/// Weights as a device multiplies them, still in the host's memory.
struct CodebookRecords {
  WeightSpec spec;
  int64_t rows = 0, cols = 0, padded_rows = 0, padded_cols = 0;
  /// Parts of K that are summed by themselves and added in order. Of the weights, not of a launch: outputs have the
  /// same bits for any number of tokens.
  int split = 1;
  std::vector<std::byte> codes;
  std::vector<uint16_t> scales;
  std::vector<uint16_t> codebooks;
};

/// 2 for matrices of so few rows that their tiles alone leave half of 132 multiprocessors idle.
constexpr int codebook_split(int64_t rows) { return rows <= 64 * 66 ? 2 : 1; }

/// Why weights of this spec have no such records, for a person to read; empty = they have.
std::string why_no_codebooks(const WeightSpec& spec);

/// Errors: why_no_codebooks; codebook values that are no binary16.
Expected<CodebookRecords> pack_codebooks(const PackedView& weights, int threads);

}  // namespace octalane::cuda
