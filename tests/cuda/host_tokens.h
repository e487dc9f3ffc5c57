// Activations as device products want them, made on the host by the scalar quantizers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/half.h"
#include "cuda/product.h"
#include "kernels/operands.h"
#include "kernels/registry.h"

namespace octalane::test {

/// The scalar gemm of a lane: its packing and activations, and the reference.
inline const Kernel& scalar_gemm(StagedType staged) {
  for (const Kernel& kernel : find_isa("scalar")->kernels) {
    if (kernel.staged == staged && kernel.op == Op::gemm) return kernel;
  }
  ADD_FAILURE() << "no scalar kernel for " << name(staged);
  return find_isa("scalar")->kernels[0];
}

/// Activations as cuda/product.h wants them, from the scalar form.
struct HostTokens {
  std::vector<std::byte> x;
  std::vector<float> scales, sums;
  std::vector<uint16_t> minima;
};

inline HostTokens host_tokens(const ActivationsView& from, int64_t padded_cols) {
  HostTokens to;
  const bool wide = !has_codes(from.form);
  const int64_t tokens = from.rows, padded = cuda::padded_tokens(tokens);
  to.x.resize(static_cast<size_t>(tokens * padded_cols * (wide ? 2 : 1)));
  for (int64_t m = 0; m < tokens; ++m) {
    for (int64_t k = 0; k < from.cols; ++k) {
      if (wide) {
        const uint16_t bits = f32_to_bf16(from.f32[m * from.stride + k]);
        const int64_t at = k / 16 * 16 + cuda::bf16_position(static_cast<int>(k % 16));
        std::memcpy(&to.x[static_cast<size_t>(m * padded_cols + at) * 2], &bits, 2);
      } else {
        to.x[static_cast<size_t>(m * padded_cols + k)] = static_cast<std::byte>(from.codes[m * from.stride + k]);
      }
    }
  }
  // Past the last token there is NaN: it must not matter.
  const int64_t scales = from.groups.scales(from.cols),
                sums = from.groups.sums(from.cols + from.groups.sum_group - 1);  // the last may be short
  const int64_t scale_stride = from.groups.scales(from.stride), sum_stride = from.groups.sums(from.stride);
  const int64_t most = padded_cols / 32;
  to.scales.assign(static_cast<size_t>(most * padded), 0.0f);
  to.sums.assign(to.scales.size(), 0.0f);
  for (int64_t g = 0; g < most; ++g) {
    for (int64_t m = 0; m < padded; ++m) {
      const auto at = static_cast<size_t>(g * padded + m);
      if (m >= tokens)
        to.scales[at] = to.sums[at] = std::numeric_limits<float>::quiet_NaN();
      else if (g < scales)
        to.scales[at] = from.scales[m * scale_stride + g];
      if (m < tokens && g < sums) to.sums[at] = static_cast<float>(from.sums[m * sum_stride + g]);
    }
  }
  to.minima.assign(static_cast<size_t>((padded_cols + 255) / 256 * padded * 16), 0);
  for (int64_t m = 0; from.groups.sum_group == 32 && m < tokens; ++m) {
    for (int64_t g = 0; g < sums; ++g) {
      const int32_t sum = from.sums[m * sum_stride + g];
      const auto whole = static_cast<float>(std::lround(sum / 32.0) * 32);
      const int64_t block = (g / 8 * padded) * 16;
      const auto at = [&](bool rest) {
        return static_cast<size_t>(block + cuda::minima_position(static_cast<int>(m), static_cast<int>(g % 8), rest));
      };
      to.minima[at(false)] = f32_to_bf16(whole);
      to.minima[at(true)] = f32_to_bf16(static_cast<float>(sum) - whole);
    }
  }
  return to;
}

}  // namespace octalane::test
