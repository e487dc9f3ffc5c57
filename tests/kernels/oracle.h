// The fp64 judge of a product. It knows the planes, never the packed bytes, and shares no code with any kernel.
#pragma once

#include <string>
#include <vector>

#include "kernels/operands.h"

namespace octalane::test {

/// The nearest bfloat16 value, ties to even, by arithmetic on the value instead of its bits.
double nearest_bf16(double value);
/// The nearest E4M3 value likewise, at most 448.
double nearest_e4m3(double value);

/// What y should be and by how much it may differ.
struct Judged {
  std::vector<double> y, tolerance;  ///< [rows of x][rows of W]
};

/// fp64 on the very operands that a kernel multiplies. The tolerance is derived: unit roundoff times the magnitudes
/// that meet in an output times the roundings on its way (one per column for bf16; for s8.group one per activation
/// group, and up to 8 in a group: two of the reference weight, of D, of R, and of the terms; for f8 lanes one per
/// column of a partial sum, one per partial sum, and 3 for scales).
/// Unrounded weights are the decoded ones, without the rounding of their decoding: each codeword of theirs meets the
/// activation by itself, or each level and each bias.
Judged judge_kernel(StagedType staged, Exactness exactness, const Planes& planes, const Formed& x);
inline Judged judge_kernel(const Kernel& kernel, const Planes& planes, const Formed& x) {
  return judge_kernel(kernel.staged, kernel.exactness, planes, x);
}

/// fp64 on fp32 activations and decoded weights; the tolerance adds the rounding of both operands to 16 bits, or half
/// a step of every activation code (E4M3: 2^-4 of the value, or 2^-10 of the scale), to the kernel's own.
Judged judge_total(StagedType staged, const Planes& planes, const Activations& x, const Formed& formed,
                   const Judged& kernel);

/// Empty when the first y.rows rows are within tolerance; else the first output that is not, for a person to read.
std::string mismatch(const Judged& judged, MatrixView<const float> y);

}  // namespace octalane::test
