// bench gemm --device cuda.
#pragma once

#include "cli/command.h"

namespace octalane::cli {

struct CudaGemmOptions {
  std::vector<std::string> formats;
  std::vector<int64_t> tokens;
  int64_t rows = 0, cols = 0;
  std::string lane = "auto";  ///< auto: every lane that has kernels for the format
  std::string kernel;         ///< as of ProductsOptions
  int rounds = 5;
  uint64_t seed = 1;
  bool json = false;
  std::string activations = "gaussian";  ///< of token_kinds()
};

/// Every kernel of the first CUDA device that serves the formats, beside cuBLASLt on dense operands of the same shape
/// where its library is.
Expected<int> bench_gemm_cuda(const CudaGemmOptions& options);

}  // namespace octalane::cli
