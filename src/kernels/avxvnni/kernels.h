// The entries of AVX-VNNI (with AVX2, FMA and F16C), the 256-bit dot product of processors without AVX-512. All else is
// AVX2's.
#pragma once

#include "kernels/kernel.h"

namespace octalane::avxvnni {

inline constexpr int kS8Tokens = 4;  ///< 4 x 2 int32 accumulators cover the latency of vpdpbusd; fp32 sums in memory
inline constexpr int kLeastS8Tokens = 2;
inline constexpr int kGemvTokens = 4;
inline constexpr int kS8PanelCols = 512;

/// Chain per output as the scalar kernel states; integer parts exact.
void s8_group_gemm(const MatmulArgs& args);
void s8_group_gemv(const MatmulArgs& args);
int64_t s8_group_gemm_scratch(const Problem& problem);
int64_t s8_group_gemv_scratch(const Problem& problem);

void s8_nested_gemm(const MatmulArgs& args);
void s8_nested_gemv(const MatmulArgs& args);
int64_t s8_nested_gemm_scratch(const Problem& problem);
int64_t s8_nested_gemv_scratch(const Problem& problem);

inline constexpr int kProbes = 5;
extern const ProbeLoop probes[kProbes];

std::string unavailable();

}  // namespace octalane::avxvnni
