// What the multiply instructions of this machine reach.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace octalane {

/// Operations per second of one loop, in 10^12, sample by sample, and the clock after each.
struct LoopRate {
  std::vector<double> tops;
  double clock_ghz = 0;  ///< median

  double median() const;
};

/// One instruction of one instruction set on a number of threads. Sample i of every instruction and loop comes from
/// the same round, so that ratios may be taken sample by sample.
struct InstructionRate {
  std::string instruction, isa;
  Lane lane = Lane::bf16;
  ProbeElement element = ProbeElement::s8;
  int threads = 1;
  LoopRate registers, loaded;
  /// Lanes with integer accumulators only: drained every 32 and 256 columns and once a row.
  std::optional<LoopRate> drain_32, drain_256, drain_row;
};

struct InstructionOptions {
  std::vector<int> threads{1};
  int repeats = 7;               ///< rounds over all loops
  double sample_seconds = 0.01;  ///< timed, per loop and round
  std::string instruction;       ///< only this one; empty = all
};

/// Measures the probe loops of these instruction sets, which this machine must have. `progress(done, all)` is called
/// between samples; when it returns false, nothing is returned.
std::vector<InstructionRate> measure_instructions(std::span<const IsaTable* const> isas,
                                                  const InstructionOptions& options,
                                                  const std::function<bool(int done, int all)>& progress = {});

std::string_view name(ProbeElement element);

}  // namespace octalane
