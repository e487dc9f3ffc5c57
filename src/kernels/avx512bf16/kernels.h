// The entries of AVX-512 BF16: no kernels, for its rates decide nothing that another instruction set does not do
// faster.
#pragma once

#include "kernels/kernel.h"

namespace octalane::avx512bf16 {

inline constexpr int kProbes = 2;
extern const ProbeLoop probes[kProbes];

std::string unavailable();

}  // namespace octalane::avx512bf16
