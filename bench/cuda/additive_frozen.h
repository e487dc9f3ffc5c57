// The baseline of products with codebooks on a device: decoding again for every 16 tokens, and variants of the
// library's kernels.
#pragma once

#include <cstddef>
#include <span>

#include "cuda/additive_product.h"

namespace octalane::bench {

/// The device code of this build; empty without nvcc.
std::span<const std::byte> frozen_code();
/// All of its kernels: those of 16 tokens are the baseline.
std::span<const cuda::AdditiveKernel> frozen_kernels();

}  // namespace octalane::bench
