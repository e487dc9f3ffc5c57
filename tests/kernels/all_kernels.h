// Loops over what the registry has on this machine.
#pragma once

#include <gtest/gtest.h>

#include "kernels/amx_emulator.h"
#include "kernels/operands.h"
#include "kernels/registry.h"

namespace octalane::test {

/// Whether the kernels of an instruction set can run here: by the machine, or AMX by software.
inline bool runs(const IsaTable& isa) {
  return isa.unavailable().empty() || (std::string_view(isa.name) == "amx" && emulate_amx());
}

/// visit(isa) for every instruction set that runs here.
template <class Visit>
void for_each_isa(Visit visit) {
  for (const IsaTable* isa : isa_tables()) {
    if (runs(*isa)) visit(*isa);
  }
}

/// visit(isa, kernel) for every kernel of this machine that serves these weights.
template <class Visit>
void for_each_kernel(const WeightSpec& spec, int64_t cols, Visit visit) {
  for_each_isa([&](const IsaTable& isa) {
    for (const Kernel& kernel : isa.kernels) {
      const Problem problem{.tokens = 1, .rows = 1, .cols = cols, .weights = spec, .staged = kernel.staged};
      if (!kernel.supports(problem).empty()) continue;
      SCOPED_TRACE(name(kernel));
      visit(isa, kernel);
    }
  });
}

inline const NamedSpec& spec_named(std::string_view wanted) {
  for (const NamedSpec& spec : all_specs()) {
    if (spec.name == wanted) return spec;
  }
  ADD_FAILURE() << "no weights named " << wanted;
  return all_specs()[0];
}

/// One product from planes and activations to y, through the kernel's own packing and its ISA's quantizer.
class Product {
 public:
  Product(const IsaTable& isa, const Kernel& kernel, const Planes& planes, MatrixView<const float> x)
      : kernel_(kernel),
        packed_(planes, kernel.order),
        formed_(quantizer(isa, kernel.form), kernel.groups(planes.spec()), x, packed_.view().padded_cols()),
        restage_(restage_for(kernel, packed_.view())),
        y_(std::min(x.rows, kernel.max_tokens), planes.rows(), 9) {}

  /// Runs the tokens that the kernel accepts at once.
  const Outputs& run() {
    run_in_parts(kernel_, packed_.view(), formed_.head(y_.view().rows), y_.view(), restage_);
    return y_;
  }
  MatrixView<const float> y() {
    const MatrixView<float> v = y_.view();
    return {v.data, v.rows, v.cols, v.row_stride, 1};
  }
  Packed& packed() { return packed_; }
  const Formed& formed() const { return formed_; }

 private:
  const Kernel& kernel_;
  Packed packed_;
  Formed formed_;
  std::vector<float> restage_;
  Outputs y_;
};

}  // namespace octalane::test
