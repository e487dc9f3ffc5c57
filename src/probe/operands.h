// Memory that probe loops read and write.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"
#include "kernels/kernel.h"

namespace octalane {

/// Random operands of one element type, all below 1 in magnitude, and what else ProbeArgs points at.
class ProbeOperands {
 public:
  ProbeOperands(ProbeElement element, uint32_t seed);
  /// Operands and scales of 1, biases of 0: a loop then counts its multiply-adds.
  static ProbeOperands ones(ProbeElement element);

  ProbeArgs args(int64_t iterations) const {
    return {iterations, operands_.data(), scales_.data(), scales_.data() + kProbeScales, out_.data()};
  }
  std::byte* operands() const { return operands_.data(); }
  std::byte* out() const { return out_.data(); }

 private:
  ProbeOperands();
  AlignedBuffer<std::byte> operands_{kProbeOperandBytes}, out_{kProbeOutBytes};
  AlignedBuffer<float> scales_{2 * kProbeScales};
};

}  // namespace octalane
