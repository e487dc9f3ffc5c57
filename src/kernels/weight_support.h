// What every instruction set asks of a problem before its own questions.
#pragma once

#include <string>

#include "kernels/kernel.h"

namespace octalane {

/// Why these weights cannot be packed and staged by the kernels of this room; empty = they can.
/// Codes of 2 3 4 5 6 8 bits or floats; groups 16 32 64 128; super a multiple of max(32, group), at most 256.
/// s8.nested needs nested scales; re-encoded types refuse integer codes of 8 bits (it would cost more than such formats
/// lose). The f8 lanes take E4M3 codes and tables of levels that E4M3 holds, without bias; f8.row
/// scales that are powers of two.
std::string why_not_staged(const Problem& problem);
/// The same for kernels that do not know codebooks.
std::string why_not_plain(const Problem& problem);
/// The same for kernels that know nothing else.
std::string why_not_codebook(const Problem& problem);

/// The activation groups of bf16: none.
ActivationGroups no_groups(const WeightSpec& spec);

/// The activation groups of s8.group: scales per max(32, group) columns, sums per group.
ActivationGroups s8_group_groups(const WeightSpec& spec);

/// Of s8.nested: a scale per super-group, sums per group.
ActivationGroups s8_nested_groups(const WeightSpec& spec);

/// Of s8.block and s8.xblock: a scale per 256 columns; of s8.row and the f8 lanes: one per row. No sums.
ActivationGroups block_groups(const WeightSpec& spec);
ActivationGroups whole_row_groups(const WeightSpec& spec);

}  // namespace octalane
