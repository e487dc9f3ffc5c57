// The table of product kernels: what each serves, and how it is launched.
#pragma once

#include <span>
#include <string>

#include "core/staged_type.h"
#include "cuda/pack.h"

namespace octalane::cuda {

struct GemmKernel {
  const char* function;  ///< of device code
  StagedType staged;
  Code code;
  int group;         ///< columns of a scale that it is made for; 0: any that are not fine
  bool bias;         ///< s8.group: for weights with a bias
  bool fine;         ///< groups of 16 only
  int rows, tokens;  ///< of a tile
  int threads, shared_bytes;
};

std::span<const GemmKernel> gemm_kernels();

/// "s8.row_gemm_128x256x128_cuda-nibble": lane, tile of rows, tokens and columns, code.
std::string name(const GemmKernel& kernel);

/// Why the kernel cannot multiply these weights; empty = it can.
std::string why_not(const GemmKernel& kernel, const Records& weights);

}  // namespace octalane::cuda
