// The device code of this build, fatbins; empty in a build without nvcc.
#pragma once

#include <cstddef>
#include <span>

namespace octalane::cuda {

std::span<const std::byte> probe_code();       ///< sm_80 and sm_90a
std::span<const std::byte> gemm_code();        ///< sm_90a
std::span<const std::byte> gemm_mma_code();    ///< sm_80 and sm_90a
std::span<const std::byte> gemv_code();        ///< sm_80 and sm_90a
std::span<const std::byte> activation_code();  ///< sm_80 and sm_90a
std::span<const std::byte> additive_code();    ///< sm_90a
std::span<const std::byte> experts_code();     ///< sm_80 and sm_90a

}  // namespace octalane::cuda
