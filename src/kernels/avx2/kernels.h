// The entries of the AVX2 instruction set (AVX2, FMA, F16C). Every output is one chain in ascending K, so gemv equals
// gemm to the bit for any number of tokens and any split, and both equal the scalar reference.
#pragma once

#include "kernels/kernel.h"

namespace octalane::avx2 {

inline constexpr int kRows = 16;       ///< weight rows of a tile: two vectors of eight fp32
inline constexpr int kBf16Tokens = 6;  ///< 6 x 2 accumulators + 2 weights + 1 broadcast = 15 of 16 registers
inline constexpr int kS8Tokens = 2;    ///< 2 x 2 each of fp32, int32 and int16 accumulators + 1 broadcast + 1 product
inline constexpr int kGemvTokens = 2;
inline constexpr int kCodewordTokens = 16;

/// Columns that a gemm decodes at once; every record is a whole fraction of them. Longer panels fetch and store y less
/// often: 512 tokens of a 2048 x 2048 product gained 13 % from 256 to 512 (bf16) and 50 % from 256 to 1024 (s8.group),
/// Xeon of 48 KiB L1, 2026-11.
inline constexpr int kBf16PanelCols = 512;   ///< 32 KiB
inline constexpr int kCodePanelCols = 1024;  ///< 16 KiB and scales

inline constexpr int kBf16PanelBytes = kBf16PanelCols * kRows * 4;  ///< bfloat16 values at fp32 width

/// Codes at 8 bits, fp32 scale and bias per group of at least 16 columns.
struct CodePanel {
  alignas(64) int8_t codes[kCodePanelCols / 4][kRows][4];
  alignas(64) float scale[kCodePanelCols / 16][kRows];
  alignas(64) float bias[kCodePanelCols / 16][kRows];
};

/// Chain per output: y = fma(w, x, y), weights decoded and rounded to bfloat16 as the scalar kernel states.
void bf16_gemm(const MatmulArgs& args);
void bf16_gemv(const MatmulArgs& args);

/// Codebook weights, not rounded (Exactness::unrounded): kCodewordTokens at most, eight, four, two or one together; one
/// token.
void codebook_gemv(const MatmulArgs& args);
void codebook_table_gemv(const MatmulArgs& args);
int64_t codebook_table_scratch(const Problem& problem);

/// Chain per output as the scalar kernel states; integer parts exact, no intermediate saturates.
void s8_group_gemm(const MatmulArgs& args);
void s8_group_gemv(const MatmulArgs& args);

/// Weights re-encoded as core/restage.h states, outputs as the scalar kernels state.
void s8_row_gemm(const MatmulArgs& args);
void s8_xblock_gemm(const MatmulArgs& args);
void s8_block_gemm(const MatmulArgs& args);
int64_t s8_restaged_scratch(const Problem& problem);

void quantize_bf16(const QuantizeArgs& args);
void quantize_s8(const QuantizeArgs& args);

void attend(const AttendArgs& args);

extern const RowMath k_rows;

inline constexpr int kProbes = 7;
extern const ProbeLoop probes[kProbes];
uint64_t read_memory(const std::byte* data, int64_t bytes);

std::string unavailable();

}  // namespace octalane::avx2
