#pragma once

#include <span>
#include <string_view>

#include "kernels/kernel.h"

namespace octalane {

/// Every instruction set of this build, slowest first (scalar is always there), whether or not the machine has it.
std::span<const IsaTable* const> isa_tables();

/// By name; null when this build has none of that name.
const IsaTable* find_isa(std::string_view name);

/// The quantizer of an ISA for a form, or that of the ISA it extends, or scalar's.
const Quantizer& quantizer(const IsaTable& isa, ActivationForm form);

/// Its attend(), or that of the ISA it extends.
void (*attend(const IsaTable& isa))(const AttendArgs&);

/// Its maths of rows, or that of the ISA it extends.
const RowMath& row_math(const IsaTable& isa);

}  // namespace octalane
