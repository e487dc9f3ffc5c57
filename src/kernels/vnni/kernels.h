// The entries of the AVX-512 VNNI instruction set (AVX-512 F, BW, DQ, VL, VNNI). Every output is one chain in ascending
// K, so gemv equals gemm to the bit for any number of tokens and any split, and both equal the scalar reference.
#pragma once

#include "kernels/kernel.h"

namespace octalane::vnni {

inline constexpr int kRows = 16;          ///< weight rows of a tile: one vector of fp32, four columns of them in bytes
inline constexpr int kGemmTiles = 2;      ///< tiles that share a broadcast activation
inline constexpr int kS8Tokens = 6;       ///< 2 x 6 each of fp32 and int32 accumulators, 8 registers for the rest
inline constexpr int kLeastS8Tokens = 4;  ///< fewer would leave vpdpbusd waiting for its sums
inline constexpr int kBf16Tokens = 12;    ///< 2 x 12 accumulators, 2 weights, 1 broadcast
inline constexpr int kLeastBf16Tokens = 4;
inline constexpr int kGemvTokens = 8;  ///< 8 each of fp32 and int32 accumulators, weights and masks in the rest
inline constexpr int kGemvBlocks = 2;  ///< of so many tokens, in s8: above that, decoding twice costs more than a panel

/// Columns that a gemm decodes at once; every record is a whole fraction of them.
inline constexpr int kS8PanelCols = 512;    ///< two tiles: 16 KiB and scales
inline constexpr int kBf16PanelCols = 256;  ///< two tiles: 32 KiB

/// Chain per output: y = fma(w, x, y), weights decoded and rounded to bfloat16 as the scalar kernel states.
void bf16_gemm(const MatmulArgs& args);
void bf16_gemv(const MatmulArgs& args);
int64_t bf16_gemm_scratch(const Problem& problem);

/// Chain per output as the scalar kernel states; integer parts exact.
void s8_group_gemm(const MatmulArgs& args);
void s8_group_gemv(const MatmulArgs& args);
int64_t s8_group_gemm_scratch(const Problem& problem);
int64_t s8_group_gemv_scratch(const Problem& problem);

void s8_nested_gemm(const MatmulArgs& args);
void s8_nested_gemv(const MatmulArgs& args);
int64_t s8_nested_gemm_scratch(const Problem& problem);
int64_t s8_nested_gemv_scratch(const Problem& problem);

void quantize_bf16(const QuantizeArgs& args);
void quantize_s8(const QuantizeArgs& args);
void quantize_bf16_tiles(const QuantizeArgs& args);
void quantize_s8_tiles(const QuantizeArgs& args);

void attend(const AttendArgs& args);

extern const RowMath k_rows;

inline constexpr int kProbes = 7;
extern const ProbeLoop probes[kProbes];
uint64_t read_memory(const std::byte* data, int64_t bytes);

std::string unavailable();

}  // namespace octalane::vnni
