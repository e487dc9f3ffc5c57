// The device code of this build.
#pragma once

#include <cstddef>
#include <span>

namespace octalane::cuda {

/// A fatbin for sm_80 and sm_90a; empty in a build without nvcc.
std::span<const std::byte> probe_code();

}  // namespace octalane::cuda
