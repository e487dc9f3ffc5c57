// Products of few tokens: the kernels that read weights once and are bound by that alone.
#pragma once

#include <span>
#include <string>

#include "cuda/staging.h"

namespace octalane::cuda {

/// Multiplies bf16 activations by decoded weights that are not rounded; sums in fp32.
struct GemvKernel {
  const char* function;  ///< of device code
  Code code;
  int group;   ///< columns of a scale: 16, 32, or 64 for all larger ones
  int tokens;  ///< of a launch, at most: 1, 4, 8 or 16
};

/// By code, group and tokens.
std::span<const GemvKernel> gemv_kernels();

/// What it multiplies.
StagingForm staging_form(const GemvKernel& kernel);

/// "bf16_gemv_128x8x64_cuda-nibble-g32": lane, rows of a block, tokens and columns of a step, code, group.
std::string name(const GemvKernel& kernel);

/// Tokens that one launch of the kernel takes: its own number, or fewer where the device's shared memory holds no more
/// of so many columns.
int tokens_at_once(const GemvKernel& kernel, const Records& weights, const DeviceInfo& device);

/// Why the kernel cannot multiply these weights on this device; empty = it can.
std::string why_not(const GemvKernel& kernel, const Records& weights, const DeviceInfo& device);

/// Of device memory for the partial sums of devices without clusters, for this many tokens and any fewer; 0 where there
/// are clusters.
int64_t partial_bytes(const Records& weights, int64_t tokens, const DeviceInfo& device);

/// The kernels on a device.
class Gemvs {
 public:
  /// Errors: a build without device code, a device that has none here, the driver's.
  static Expected<Gemvs> load(const Session& session);

  /// Enqueues y = x W^T, in as many launches as tokens need; may be captured. x is staged in its staging_form. The same
  /// bits for every number of tokens, with clusters and without. `partials`: partial_bytes of memory; given where there
  /// are clusters, they are not used. Errors: a kernel that cannot serve the weights, an output of bfloat16, the
  /// driver's.
  Status multiply(const GemvKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                  const Stream& stream, Address partials = 0) const;

 private:
  Gemvs(const Session& session, Module module) : session_(&session), module_(std::move(module)) {}
  struct Part {
    int64_t first;
    int tokens;
  };
  Status launch(const GemvKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                const Part& part, const Stream& stream, Address partials) const;
  const Session* session_;
  Module module_;
  std::vector<FunctionHandle> functions_;  ///< in the table's order
  FunctionHandle sum_ = nullptr;
};

}  // namespace octalane::cuda
