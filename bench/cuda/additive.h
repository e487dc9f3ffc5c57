// What decoding codebooks once and reusing over all tokens is worth on a device, beside decoding again for each 16.
#pragma once

#include <vector>

#include "cli/command.h"
#include "cli/cuda_rotation.h"

namespace octalane::bench {

struct AdditiveOptions {
  int64_t rows = 14336, cols = 4096;
  std::vector<int64_t> tokens{32, 64, 128, 1024};
  bool variants = false;  ///< also the library's kernels with other ways to widen codewords
  uint64_t seed = 1;
  cli::RotationOptions rotation;
};

/// Times, for each number of tokens, the library's kernel ("reuse") beside the baselines, with additive-m2v8-g128
/// weights. Before that every arm's outputs are compared with the first's bit for bit, and spread ones with fp64. The
/// JSON has ms, TFLOP/s and the ratio to the fastest baseline. Errors: outputs that differ; the device's.
Expected<cli::Json> additive_bench(const cuda::Session& session, const cuda::Stream& stream,
                                   const AdditiveOptions& options);

}  // namespace octalane::bench
