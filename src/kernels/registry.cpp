#include "kernels/registry.h"

#include <fmt/format.h>

#include "isa_list.inc"

namespace octalane {

std::string name(const Kernel& kernel) {
  return fmt::format("{}_{}_{}x{}x{}_{}", name(kernel.staged), kernel.op == Op::gemm ? "gemm" : "gemv", kernel.tile.m,
                     kernel.tile.n, kernel.tile.k, kernel.isa);
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
  for (const Quantizer& row : kIsaTables[0]->quantizers) {
    if (row.form == form) return row;
  }
  return kIsaTables[0]->quantizers[0];  // scalar brings every form: the contract test checks it
}

}  // namespace octalane
