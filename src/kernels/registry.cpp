#include "kernels/registry.h"

#include <fmt/format.h>

#include "core/ablation.h"
#include "isa_list.inc"

namespace octalane {

std::string name(const Kernel& kernel) {
  const std::string_view variant = kernel.variant;
  std::string text =
      fmt::format("{}_{}{}{}_{}x{}x{}_{}", name(kernel.staged), kernel.op == Op::gemm ? "gemm" : "gemv",
                  variant.empty() ? "" : "-", variant, kernel.tile.m, kernel.tile.n, kernel.tile.k, kernel.isa);
  if constexpr (kAblation != Ablation::none) text.append("+").append(name(kAblation));
  return text;
}

std::span<const IsaTable* const> isa_tables() { return kIsaTables; }

const IsaTable* find_isa(std::string_view isa_name) {
  for (const IsaTable* table : kIsaTables) {
    if (table->name == isa_name) return table;
  }
  return nullptr;
}

const Quantizer& quantizer(const IsaTable& isa, ActivationForm form) {
  for (const Quantizer& row : isa.quantizers) {
    if (row.form == form) return row;
  }
  if (isa.extends != nullptr) return quantizer(*find_isa(isa.extends), form);
  if (&isa != kIsaTables[0]) return quantizer(*kIsaTables[0], form);
  return isa.quantizers[0];  // scalar brings every form: the contract test checks it
}

void (*attend(const IsaTable& isa))(const AttendArgs&) {
  return isa.attend != nullptr || isa.extends == nullptr ? isa.attend : attend(*find_isa(isa.extends));
}

const RowMath& row_math(const IsaTable& isa) {
  return isa.rows != nullptr || isa.extends == nullptr ? *isa.rows : row_math(*find_isa(isa.extends));
}

}  // namespace octalane
