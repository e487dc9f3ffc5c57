// What the public kernels do for more than a token, done for one: the whole matrix to fp16 first, then a product.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel.h"

namespace octalane::bench {

/// y = x W^T for one token and codebooks of v = 8, AVX2: all weights decoded to fp16, row by row, then multiplied in
/// fp32. `expanded` holds N x K halves.
void expand_and_multiply(const MatmulArgs& args, std::vector<uint16_t>& expanded);

}  // namespace octalane::bench
