// What the multiply instructions and the memory of a CUDA device reach.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cuda/nvml.h"
#include "cuda/session.h"

namespace octalane::cuda {

/// Samples of one loop: 10^12 operations a second on the whole device, and the clock of the multiprocessors while it
/// ran.
struct LoopRate {
  std::vector<double> tops, clock_ghz;
};

/// One instruction of the device. Sample i of everything comes from the same round, so ratios may be taken sample by
/// sample.
struct InstructionRate {
  std::string instruction;  ///< "wgmma.s8"
  std::string ptx, isa, lane, element;
  bool emulated = false;  ///< the assembler makes it of other multiply instructions
  LoopRate pure;
  std::map<int, LoopRate> drained;  ///< by columns of K from drain to drain; lanes of 8 bits only
};

/// Reading a working set again and again past L1: from L2 while it fits there, from memory beyond.
struct MemoryRate {
  int64_t bytes = 0;
  std::vector<double> gbps;
};

struct ProbeOptions {
  int repeats = 7;               ///< rounds over all loops
  double sample_seconds = 0.01;  ///< timed, per loop and round
};

struct ProbeResult {
  std::vector<InstructionRate> rates;
  std::vector<MemoryRate> memory;
  DeviceState before, after;  ///< `after` is read right behind the last multiply loop
  int checked_loops = 0;      ///< whose every result was right, on operands of one
};

/// First checks that each loop does the operations that it claims, then measures. `progress(done, all)` is called
/// between samples; when it returns false the error says "interrupted". Errors: no code for this device, a call of the
/// driver that failed, a result that was wrong.
Expected<ProbeResult> probe(const DriverApi& api, const DeviceInfo& device, const ProbeOptions& options,
                            const std::function<bool(int done, int all)>& progress = {});

/// Why this build cannot probe the device; "" when it can.
std::string why_not(const DeviceInfo& device);

}  // namespace octalane::cuda
