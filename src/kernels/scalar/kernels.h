// The entries of the scalar instruction set, the reference of all others.
#pragma once

#include "kernels/kernel.h"

namespace octalane::scalar {

/// Weights decoded and rounded to bfloat16, y = fma(w, x, y) in ascending K.
void bf16_gemm(const MatmulArgs& args);
void bf16_gemv(const MatmulArgs& args);

/// Exact integer dots per group, then per activation scale group, in ascending K:
///   t = 0; for its weight groups: if biased, t = fma(bias, R, t); t = fma(scale, D, t)
///   y = fma(activation scale, t, y)
/// D = sum level * code, R = sum code, both exact; fp32, every fma rounded once.
void s8_group_gemm(const MatmulArgs& args);
void s8_group_gemv(const MatmulArgs& args);

void quantize_bf16(const QuantizeArgs& args);
void quantize_s8(const QuantizeArgs& args);

void attend(const AttendArgs& args);

std::string unavailable();

}  // namespace octalane::scalar
