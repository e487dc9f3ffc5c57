// Weights of codebooks in the tests of CUDA.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "cuda/additive_pack.h"
#include "kernels/operands.h"

namespace octalane::test {

inline std::vector<NamedSpec> codebook_specs() {
  std::vector<NamedSpec> found;
  for (const NamedSpec& spec : all_specs()) {
    if (spec.spec.code.is_codebook()) found.push_back(spec);
  }
  return found;
}

inline Expected<cuda::CodebookRecords> pack(const Planes& planes) {
  const Packed packed(planes, {.rows = 16});
  return cuda::pack_codebooks(packed.view(), 2);
}

}  // namespace octalane::test
