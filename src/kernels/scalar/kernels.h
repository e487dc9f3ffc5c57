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

/// Needs one activation scale per super-group. Exact integer dots per group, combined as integers:
///   A = sum sub_scale D, C = sum sub_min R; t = scale * A; if biased, t = fma(-bias, C, t); y = fma(activation scale,
///   t, y)
void s8_nested_gemm(const MatmulArgs& args);
void s8_nested_gemv(const MatmulArgs& args);

/// Weights re-encoded (core/restage.h), D the exact integer dot over a unit of 256 columns or the row, ascending:
///   s8.row: y = (D * activation scale) * s8
///   s8.xblock: t = fma(D, activation scale, t) over the units; y = t * s8
///   s8.block: y = fma(D * s8, activation scale, y) over the units
void s8_row_gemm(const MatmulArgs& args);
void s8_xblock_gemm(const MatmulArgs& args);
void s8_block_gemm(const MatmulArgs& args);

/// E4M3 activations, one scale per row. Products of two E4M3 values are exact in fp32; in ascending K:
///   f8.group: t = sum of level * value over a group, each addition rounded; y = fma(t, weight scale, y);
///             at last y * activation scale
///   f8.row, weights re-encoded (core/restage.h): t = sum over 128 columns, each addition rounded; sum = sum + t;
///             y = (sum * activation scale) * unit
void f8_group_gemm(const MatmulArgs& args);
void f8_row_gemm(const MatmulArgs& args);

void quantize_bf16(const QuantizeArgs& args);
void quantize_s8(const QuantizeArgs& args);
void quantize_bf16_tiles(const QuantizeArgs& args);
void quantize_s8_tiles(const QuantizeArgs& args);
void quantize_e4m3(const QuantizeArgs& args);

void attend(const AttendArgs& args);

extern const RowMath k_rows;

uint64_t read_memory(const std::byte* data, int64_t bytes);

std::string unavailable();

}  // namespace octalane::scalar
