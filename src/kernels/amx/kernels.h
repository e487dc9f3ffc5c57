// The entries of the AMX instruction set (AMX-TILE, AMX-INT8, AMX-BF16 with AVX-512): 16 x 16 outputs a product, 32
// columns of bfloat16 or 64 of int8. It extends vnni, which serves few tokens, the exact int8 lanes and attention.
#pragma once

#include "kernels/kernel.h"

namespace octalane::amx {

inline constexpr int kRows = 16;             ///< weight rows of a packed tile: the columns of a matrix tile
inline constexpr int kPairRows = 2 * kRows;  ///< weight rows whose accumulators are held at once

/// bf16: products of bfloat16 pairs, fp32 sums in the order of the instruction; one accumulator per output over all K,
/// so the result does not depend on M. Subnormal weights and activations count as 0.
void bf16_gemm(const MatmulArgs& args);

/// Bit-equal to scalar: integer sums are exact, and what follows them keeps scalar's order.
void s8_group_gemm(const MatmulArgs& args);
void s8_row_gemm(const MatmulArgs& args);
void s8_xblock_gemm(const MatmulArgs& args);
void s8_block_gemm(const MatmulArgs& args);

/// Scratch of a product: a decoded panel, accumulators that wait for the next columns, outputs that wait to be written.
int64_t bf16_scratch(const Problem& problem);
int64_t s8_group_scratch(const Problem& problem);
int64_t s8_row_scratch(const Problem& problem);
int64_t s8_block_scratch(const Problem& problem);

inline constexpr int kProbes = 14;
extern const ProbeLoop probes[kProbes];

/// Whether the processor has the half-precision product too (AMX-FP16).
bool has_fp16();

/// Asks the processor, and then the operating system for permission to use the tile registers (kept by the process).
std::string unavailable();

}  // namespace octalane::amx
