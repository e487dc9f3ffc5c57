// Weights that a product kernel serves.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/restage.h"
#include "cuda/gemm_table.h"
#include "cuda/host_tokens.h"
#include "kernels/all_kernels.h"

namespace octalane::test {

/// Random weights; for kernels of any spread of scales, some that exponent words cannot serve.
inline Planes planes_for(const cuda::GemmKernel& kernel, const WeightSpec& spec, int64_t rows, int64_t cols,
                         uint32_t seed) {
  Planes planes = random_planes(spec, rows, cols, seed);
  for (int64_t r = 0; kernel.form == cuda::Form::shift && r < rows; ++r) {
    planes.row(r).scale[0] = std::ldexp(planes.row(r).scale[1], -13);
    planes.row(r).codes[0] = 7;
  }
  return planes;
}

/// Why the kernel does not take weights of this spec; empty = it does.
inline std::string why_not(const cuda::GemmKernel& kernel, const WeightSpec& spec) {
  if (const std::string why = cuda::why_no_records(spec, kernel.staged); !why.empty()) return why;
  const Planes planes = planes_for(kernel, spec, 1, 2 * column_unit(spec), 1);
  const Packed packed(planes, scalar_gemm(kernel.staged).order);
  std::optional<Restaged> made;
  if (restaged(kernel.staged)) made = restage(packed.view(), kernel.staged, 1);
  const auto records = cuda::pack_records(packed.view(), kernel.staged, made ? &*made : nullptr, 1);
  return records ? cuda::why_not(kernel, *records) : records.error().message;
}

/// What the kernels' other tests have, and one more kind of group.
inline std::vector<NamedSpec> device_specs() {
  std::vector<NamedSpec> specs = all_specs();
  WeightSpec wide = spec_named("u4_g64_bf16_bias").spec;
  wide.code.bits = 6;
  specs.push_back({"u6_g64_bf16_bias", wide});
  return specs;
}

}  // namespace octalane::test
