// The device code of this build, fatbins; empty in a build without nvcc.
#pragma once

#include <cstddef>
#include <span>

namespace octalane::cuda {

std::span<const std::byte> probe_code();    ///< for sm_80 and sm_90a
std::span<const std::byte> product_code();  ///< for sm_90a

}  // namespace octalane::cuda
