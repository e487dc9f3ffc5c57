// Packed weights of the host -> the records of cuda/records.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/packed_view.h"
#include "core/staged_type.h"
#include "core/status.h"
#include "cuda/records.h"
#include "weights/restage.h"

namespace octalane::cuda {

/// Weights as a device multiplies them in one lane, still in the host's memory: a matrix, or those of several experts,
/// of one spec and shape, each from a record of its own on.
struct Records {
  WeightSpec spec;
  StagedType staged = StagedType::bf16;
  Code code = Code::nibble;
  ScaleWords scales = ScaleWords::single_f16;
  int group = 0;  ///< of the format: 16 to 128
  int64_t experts = 1;
  int64_t rows = 0, cols = 0;  ///< of one expert
  int64_t padded_rows = 0;     ///< of all experts together
  int64_t padded_cols = 0;
  RecordLayout layout;
  int zero = 0;                             ///< of codes; 128 for tables, whose levels are looked up with 128 added
  int pivot = 0;                            ///< staged words say the value of this code
  std::array<uint8_t, 16> table{};          ///< levels + 128
  std::array<uint64_t, kShifts> shifted{};  ///< f8.row: eight magnitudes a shift
  std::vector<std::byte> bytes;
  std::vector<uint32_t> supers;    ///< nested scales
  std::vector<float> unit_scales;  ///< re-encoded lanes: [units][padded rows]

  int64_t expert_rows() const { return padded_rows / experts; }  ///< padded, of one
};

/// Bytes of codes and scales that a product of all experts reads: of records, and of the super-group scales beside
/// them.
int64_t read_bytes(const Records& records);

/// Why weights of this spec have no records for a lane, for a person to read; empty = they have.
std::string why_no_records(const WeightSpec& spec, StagedType staged);

/// Records without their bytes: what there is to know before weights are packed. `restaged`: as pack_records has it;
/// null: not known yet, scales of a row lie together then. Error: why_no_records.
Expected<Records> describe_records(const WeightSpec& spec, int64_t rows, int64_t cols, StagedType staged,
                                   const Restaged* restaged = nullptr);

/// `restaged`: of the same type, for lanes that re-encode; else null. Errors: why_no_records; int8 levels of a group
/// that do not fit 16 bits on their way (scales far beyond what its codes use).
Expected<Records> pack_records(const PackedView& weights, StagedType staged, const Restaged* restaged, int threads);

/// The same of experts, expert e's row n being row e * expert_rows() + n of the records. `restaged`: one for each, or
/// none. Errors: also no experts, and some that are unlike the first.
Expected<Records> pack_experts(std::span<const PackedView> experts, StagedType staged,
                               std::span<const Restaged> restaged, int threads);

}  // namespace octalane::cuda
