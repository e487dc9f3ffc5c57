// The baseline that stays as it is: every 16 tokens decode the weights again.
#pragma once

#include "kernels/kernel.h"

namespace octalane::bench {

inline constexpr int64_t kFrozenTokens = 16;

/// y = x W^T for additive codebooks of v = 8 in the bf16 lane, AVX2: the arithmetic and the bits of the library's
/// kernel of that lane, but tiles of 16 tokens outside, weights inside. Written 2026-12 and not to be made faster.
/// Scratch: 32 KiB, aligned to 64 bytes.
void frozen_bf16_gemm(const MatmulArgs& args);

}  // namespace octalane::bench
