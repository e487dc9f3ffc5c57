// The product kernels of mma.sync, carried out by the host from their own source.
#pragma once

#include <string>

#include "cuda/gemm_mma_args.h"

namespace octalane::test {

/// All blocks of a launch. "" or what went wrong, as run_block has it.
std::string run_mma_kernel(const std::string& function, const cuda::GemmMmaArgs& args, int blocks);

}  // namespace octalane::test
