#pragma once

#include <span>
#include <string_view>

#include "kernels/kernel.h"

namespace octalane {

/// Every instruction set of this build, slowest first (scalar is always there), whether or not the machine has it.
std::span<const IsaTable* const> isa_tables();

/// By name; null when this build has none of that name.
const IsaTable* find_isa(std::string_view name);

/// The quantizer of an ISA for a form, or scalar's when it brings none of its own.
const Quantizer& quantizer(const IsaTable& isa, ActivationForm form);

}  // namespace octalane
