// Weights bound to a device: packed and uploaded once, then y = x W^T through the plan. The device's counterpart of
// linear/linear.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/matrix_view.h"
#include "cuda/binding.h"
#include "cuda/staging.h"

namespace octalane::cuda {

/// All kernels of a device that products are made of. The session must outlive it.
struct LinearKernels {
  const Session* session;
  Products products;
  Gemvs gemvs;
  Staging staging;
  std::shared_ptr<const Rates> rates;  ///< what plans are made from; null: nominal ones

  static Expected<LinearKernels> load(const Session& session, std::shared_ptr<const Rates> rates = nullptr);
};

/// A weight matrix W[N, K] in a device's memory. Not copied; the kernels must outlive it.
class DeviceLinear {
 public:
  /// Packs for the lanes allowed and uploads; `weights` may be dropped afterwards. `name` is used in errors. Weights
  /// that a scale per row or block would spoil (weights/restage.h) are bound without it, for another lane where it was
  /// forced, and fallback() says so. Errors: no kernel of these lanes serves the weights, the device's.
  static Expected<DeviceLinear> bind(const LinearKernels& kernels, std::string name, const PackedView& weights,
                                     const LaneOptions& lanes = {}, int threads = 1);

  const std::string& name() const { return name_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  /// Device memory of the weights as they are, and of their re-encoding; 0: not kept.
  int64_t exact_bytes() const { return exact_ ? exact_->bytes() : 0; }
  int64_t encoded_bytes() const { return encoded_ ? encoded_->bytes() : 0; }
  std::optional<StagedType> encoding() const { return encoding_; }
  /// Relative L2 distance of the re-encoded weights to the decoded ones; 0 without.
  double encoding_error() const { return encoding_error_; }
  /// Why these weights do not run in the lane asked for, in one line; empty = they do.
  const std::string& fallback() const { return fallback_; }

  /// The plan that multiply follows. Fails for an output that no kernel writes.
  Expected<Plan> plan(int64_t tokens, bool f32_output = true) const;
  /// The kernel of that plan; its input's form is staging_form_of(*chosen).
  Expected<const Candidate*> choose(int64_t tokens, bool f32_output = true) const;
  StagingForm staging_form_of(const Candidate& kernel) const {
    return kernel.gemv != nullptr ? staging_form(*kernel.gemv) : staging_form(kernel.staged, kernel.group);
  }

  /// Of a workspace for multiply with this many tokens and any fewer, whatever kernel they take.
  int64_t workspace_bytes(int64_t tokens) const;

  /// Enqueues y = x W^T: staging and product. Allocates nothing and waits for nothing, so it may be captured; work on
  /// the same workspace must be in order. Each y(m, n) of one kernel is the same to the bit for every number of tokens.
  /// Errors: x of other columns, an output or a workspace that does not fit, the driver's.
  Status multiply(const Tokens& x, const Output& y, const Workspace& workspace, const Stream& stream) const;

  /// The product alone, of an input that choose(x.tokens)'s kernel wants and products may share. The workspace is for
  /// partial sums: partial_bytes(tokens), and not that in which x lies.
  Status multiply_staged(const Candidate& kernel, const StagedTokens& x, const Output& y, const Workspace& workspace,
                         const Stream& stream) const;
  /// 0 on a device of compute capability 9.0.
  int64_t partial_bytes(int64_t tokens) const;

  /// From and to host memory, through device memory of its own; waits. y is row-major.
  Status multiply_host(MatrixView<const float> x, MatrixView<float> y) const;

 private:
  explicit DeviceLinear(const LinearKernels& kernels) : kernels_(&kernels) {}
  /// Why the weights may not run re-encoded so; else they are uploaded. Errors: the device's.
  Expected<std::string> encode(const PackedView& weights, StagedType encoding, int threads);

  const LinearKernels* kernels_;
  std::string name_, fallback_;
  int64_t rows_ = 0, cols_ = 0;
  std::optional<DeviceWeights> exact_, encoded_;
  std::optional<StagedType> encoding_;
  double encoding_error_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace octalane::cuda
