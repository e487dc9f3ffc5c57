// Every row of the table by name: a family's file defines its rows, table.cpp lists them.
#pragma once

#include <array>

#include "formats/format.h"

namespace octalane::family {

// plain.cpp
extern const Format f32, f16, bf16;
// legacy.cpp
extern const Format q4_0, q4_1, q5_0, q5_1, q8_0;
// k_quants.cpp
extern const Format q2_k, q3_k, q4_k, q5_k, q6_k;
// iq4.cpp
extern const Format iq4_nl, iq4_xs;
// mx.cpp
extern const Format mxfp4;
// mlx_affine.cpp
extern const std::array<Format, 54> mlx_affine;
// mlx_fp.cpp
extern const Format mlx_mxfp4, mlx_mxfp8, mlx_nvfp4, mlx_nvfp4_scaled;
// additive.cpp
extern const std::array<Format, 18> additive_codebooks;

}  // namespace octalane::family
