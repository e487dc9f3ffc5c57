// The entries of AVX-512 BF16: products of bfloat16 pairs, twice the rate of fp32 where the instruction takes no longer
// than a multiply-add (Zen 4, Zen 5), and half of it where it is split up (Sapphire Rapids): measured rates decide. It
// extends vnni, which serves everything else.
#pragma once

#include "kernels/kernel.h"

namespace octalane::avx512bf16 {

inline constexpr int kRows = 16;
inline constexpr int kTiles = 3;      ///< 3 x 8 accumulators + 3 weights + 1 token = 28 of 32 registers
inline constexpr int kTokens = 8;     ///< a whole fraction of a strip of 32
inline constexpr int kSlabSteps = 8;  ///< of 32 columns: 24 KiB of decoded weights in L1

/// Each output is one chain along K: for every pair of columns the products of the odd and of the even one are added,
/// each rounded once; subnormals count as 0.
void bf16_gemm(const MatmulArgs& args);
int64_t bf16_scratch(const Problem& problem);

inline constexpr int kProbes = 2;
extern const ProbeLoop probes[kProbes];

std::string unavailable();

}  // namespace octalane::avx512bf16
