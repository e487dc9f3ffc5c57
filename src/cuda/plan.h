// Which kernel of a device multiplies. A pure function of the problem, the candidates, the device and what kernels were
// measured to cost: tested without any device.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/staged_type.h"
#include "core/status.h"
#include "cuda/devices.h"
#include "cuda/gemm_table.h"
#include "cuda/gemv.h"

namespace octalane::cuda {

/// What a kernel was measured to cost.
struct KernelRate {
  double panel_seconds = 0;     ///< gemm: a tile and 128 columns of it, at full clock
  double power_seconds = 0;     ///< gemm: likewise at the clock that the power limit leaves; 0: the clock holds
  double bytes_per_second = 0;  ///< gemv: of weights read, all multiprocessors together
  double fixed_seconds = 0;     ///< of a launch, whatever its size
};

/// Measured costs of a device's kernels, by name.
struct Rates {
  double memory_bytes_per_second = 0;  ///< no product is faster than its weights come; 0: the device's nominal one
  std::map<std::string, KernelRate, std::less<>> kernels;
};

struct Problem {
  int64_t tokens = 0, rows = 0, cols = 0;
  bool f32_output = true;  ///< else bfloat16
};

/// A kernel, and what it would be for certain weights.
struct Candidate {
  std::string kernel;
  StagedType staged = StagedType::bf16;
  int group = 0;        ///< columns of a weight scale
  int tile_rows = 0;    ///< of a gemm; 0: a gemv, which reads the weights with each launch
  int tile_tokens = 0;  ///< of a tile; of a launch
  bool writes_bf16 = true;
  bool by_mma = false;  ///< a gemm on mma.sync, not wgmma
  int64_t weight_bytes = 0;
  std::string refusal{};  ///< why it cannot run at all; empty = it can
  const GemmKernel* gemm = nullptr;
  const GemvKernel* gemv = nullptr;
};

struct Refusal {
  std::string kernel;
  std::string why;
};

struct Plan {
  size_t choice = 0;  ///< among the candidates
  std::string kernel;
  StagedType staged = StagedType::bf16;
  double seconds = 0;     ///< estimated, without staging, which costs all lanes about the same
  bool measured = false;  ///< from the kernel's measured rate, else from nominal ones, which are guesses
  std::string reason;
  std::vector<Refusal> refused;
};

/// Seconds by the nominal rates of the device: what its instructions and memory could at most, and a drain's
/// instructions on top.
double nominal_seconds(const Candidate& candidate, const Problem& problem, const DeviceInfo& device);

/// Seconds from a measured rate. gemm: tiles go to multiprocessors in waves, each as long as a tile; but no less than
/// the weights take from memory, or all tiles at the power limit, where idle multiprocessors leave power to the others.
/// gemv: the weights' bytes, for each launch.
double measured_seconds(const Candidate& candidate, const Problem& problem, const DeviceInfo& device,
                        const Rates& rates, const KernelRate& rate);

/// The candidate with the least estimated time among those that can run. One without a measured rate counts as slow,
/// beside its nominal time, as the slowest of the measured ones of its lane and sort does; so without any measured rate
/// nominal times decide. One on mma.sync without a measured rate runs only where none of its lane on wgmma can. Of
/// equal estimates the first wins. Empty: none can run.
std::optional<size_t> best(const Problem& problem, std::span<const Candidate> candidates, const DeviceInfo& device,
                           const Rates* rates);

/// best() with its reasons. Fails only when no candidate can run, and then says what each lacked.
Expected<Plan> choose(const Problem& problem, std::span<const Candidate> candidates, const DeviceInfo& device,
                      const Rates* rates);

}  // namespace octalane::cuda
