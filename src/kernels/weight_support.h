// What every instruction set asks of a problem before its own questions.
#pragma once

#include <string>

#include "kernels/kernel.h"

namespace octalane {

/// Why these weights cannot be packed and staged by the kernels of this room; empty = they can.
/// Codes of 2 3 4 5 6 8 bits or floats; groups 16 32 64 128; super a multiple of max(32, group), at most 256.
std::string why_not_staged(const Problem& problem);

/// The activation groups of s8.group: scales per max(32, group) columns, sums per group.
ActivationGroups s8_group_groups(const WeightSpec& spec);

}  // namespace octalane
