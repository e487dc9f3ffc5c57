// E2M1, the 4-bit float of OCP's Microscaling Formats (MX) Specification v1.0, kept doubled so that its levels are
// integers; and the search for the power of two over a block of them.
#pragma once

#include <array>
#include <cstdint>

namespace octalane {

inline constexpr std::array<int8_t, 16> kDoubledE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Values in units of half a scale -> codes of the nearest levels, of two equally near the smaller; what is too large
/// saturates; zero has no sign. Returns the squared error in these units.
float round_to_e2m1(const float* x, int count, uint8_t* codes);

/// A block of MX: 32 codes under the scale 2^(scale - 127).
struct MxFp4 {
  uint8_t scale = 0;
  uint8_t codes[32] = {};
};

/// The scale of least squared error among those that put the largest magnitude at 2..4, 4..8 and 8..16 levels, of 12.
MxFp4 fit_mxfp4(const float* values);

}  // namespace octalane
