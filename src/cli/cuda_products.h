// Products of compressed weights on a device, beside the vendor's dense ones on the same shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/cublaslt.h"
#include "cli/cuda_rotation.h"
#include "cuda/linear.h"

namespace octalane::cli {

struct ProductsOptions {
  std::string format;
  int64_t tokens = 0, rows = 0, cols = 0;
  std::vector<StagedType> lanes;  ///< empty: all that have kernels for the format
  std::string kernel;             ///< part of the names of kernels; empty: all, but not mma.sync's beside wgmma's
  int promote_cols = 512;         ///< f8.row
  bool peers = true;              ///< also the vendor's, where its library is
  uint64_t seed = 1;
  std::string activations = "gaussian";  ///< of token_kinds()
  RotationOptions rotation;
};

/// Times every kernel that serves the format in these lanes, weights resident and activations staged, outputs bfloat16
/// (few tokens: fp32), and beside them the vendor's bf16, int8 and fp8 products of dense operands. Every kernel's error
/// is measured first, on fp32 outputs; one beyond what its arithmetic allows is an error. `lt` may be null.
Expected<Json> products_bench(const cuda::LinearKernels& kernels, const cuda::Stream& stream, const LtApi* lt,
                              const ProductsOptions& options);

}  // namespace octalane::cli
