#include "cuda/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/restage.h"
#include "weights/restage.h"

namespace octalane::cuda {
namespace {

/// Re-encodings of other lanes than this one's.
StagedSet without_lane_of(StagedSet encodings, StagedType encoding) {
  for (const StagedTypeInfo& row : kStagedTypes) {
    if (row.lane == info(encoding).lane) encodings.erase(row.type);
  }
  return encodings;
}

Status check_output(const std::string& name, const Output& y, int64_t rows) {
  if (y.stride < rows) return fail("{}: wanted an output stride of at least {}, got {}", name, rows, y.stride);
  const unsigned alignment = y.f32 ? 4 : 16;
  if (y.address % alignment == 0) return {};
  return fail("{}: wanted an output at a multiple of {} bytes, got {:#x}", name, alignment, y.address);
}

}  // namespace

Expected<LinearKernels> LinearKernels::load(const Session& session, std::shared_ptr<const Rates> rates) {
  Expected<Products> products = Products::load(session);
  if (!products) return fail_with(products);
  Expected<Gemvs> gemvs = Gemvs::load(session);
  if (!gemvs) return fail_with(gemvs);
  Expected<Staging> staging = Staging::load(session);
  if (!staging) return fail_with(staging);
  return LinearKernels{&session, std::move(*products), std::move(*gemvs), std::move(*staging), std::move(rates)};
}

Expected<DeviceLinear> DeviceLinear::bind(const LinearKernels& kernels, std::string name, const PackedView& weights,
                                          const LaneOptions& lanes, int threads) {
  const DeviceInfo& device = kernels.session->device();
  DeviceLinear linear(kernels);
  linear.name_ = std::move(name);
  linear.rows_ = weights.rows, linear.cols_ = weights.cols;
  if (weights.rows < 1 || weights.cols < 1) {
    return fail("{}: wanted at least 1 x 1 weights, got {} x {}", linear.name_, weights.rows, weights.cols);
  }
  LaneOptions taken = lanes;
  StagedSet encodings = kEncodings;
  const auto plan = [&] {
    return plan_binding(weights.spec, weights.rows, weights.cols, taken, encodings, device, kernels.rates.get());
  };
  Expected<Binding> binding = plan();
  while (binding && binding->encoding) {
    const StagedType encoding = *binding->encoding;
    const Expected<std::string> why = linear.encode(weights, encoding, threads);
    if (!why) return fail("{}: {}", linear.name_, why.error().message);
    if (why->empty()) break;
    encodings = without_lane_of(encodings, encoding);
    std::string what = fmt::format("not {}", octalane::name(encoding));
    if (taken.forced) {
      taken.forced = info(encoding).lane == Lane::s8 ? StagedType::s8_group : StagedType::f8_group;
      if (!plan()) taken.forced = StagedType::bf16;
      what = fmt::format("{} instead of {}", octalane::name(*taken.forced), octalane::name(*lanes.forced));
    }
    linear.fallback_ = fmt::format("{}: {}", what, *why);
    binding = plan();
  }
  if (!binding) return fail("{}: {}", linear.name_, binding.error().message);
  if (binding->exact) {
    Expected<Records> records = pack_records(weights, StagedType::bf16, nullptr, threads);
    if (!records) return fail("{}: {}", linear.name_, records.error().message);
    Expected<DeviceWeights> exact = DeviceWeights::upload(*kernels.session, std::move(*records));
    if (!exact) return fail("{}: {}", linear.name_, exact.error().message);
    linear.exact_.emplace(std::move(*exact));
  }
  encodings = {};
  if (linear.encoding_) encodings.insert(*linear.encoding_);
  linear.candidates_ = list_candidates(weights.spec, weights.rows, weights.cols, taken, encodings, device,
                                       linear.encoded_ ? &linear.encoded_->about() : nullptr);
  return linear;
}

Expected<std::string> DeviceLinear::encode(const PackedView& weights, StagedType encoding, int threads) {
  const Restaged made = restage(weights, encoding, threads);
  if (std::string why = why_unfit(weights.spec, made); !why.empty()) return why;
  Expected<Records> records = pack_records(weights, encoding, &made, threads);
  if (!records) return records.error().message;
  Expected<DeviceWeights> uploaded = DeviceWeights::upload(*kernels_->session, std::move(*records));
  if (!uploaded) return fail_with(uploaded);
  encoded_.emplace(std::move(*uploaded));
  encoding_ = encoding;
  encoding_error_ = made.relative_error;
  return std::string();
}

Expected<Plan> DeviceLinear::plan(int64_t tokens, bool f32_output) const {
  Expected<Plan> plan =
      cuda::choose({tokens, rows_, cols_, f32_output}, candidates_, kernels_->session->device(), kernels_->rates.get());
  if (!plan) return fail("{}: {}", name_, plan.error().message);
  if (!fallback_.empty()) plan->reason = fmt::format("{}; {}", fallback_, plan->reason);
  return plan;
}

Expected<const Candidate*> DeviceLinear::choose(int64_t tokens, bool f32_output) const {
  const std::optional<size_t> chosen =
      best({tokens, rows_, cols_, f32_output}, candidates_, kernels_->session->device(), kernels_->rates.get());
  if (!chosen) return fail_with(plan(tokens, f32_output));
  return &candidates_[*chosen];
}

int64_t DeviceLinear::partial_bytes(int64_t tokens) const {
  return exact_ ? cuda::partial_bytes(exact_->about(), tokens, kernels_->session->device()) : 0;
}

int64_t DeviceLinear::workspace_bytes(int64_t tokens) const {
  int64_t most = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.refusal.empty()) most = std::max(most, staging_bytes(staging_form_of(candidate), tokens, cols_));
  }
  return most + partial_bytes(tokens);
}

Status DeviceLinear::multiply(const Tokens& x, const Output& y, const Workspace& workspace,
                              const Stream& stream) const {
  if (x.cols != cols_) return fail("{}: wanted {} input columns, got {}", name_, cols_, x.cols);
  if (x.tokens == 0) return {};
  const Expected<const Candidate*> kernel = choose(x.tokens, y.f32);
  if (!kernel) return fail_with(kernel);
  const StagingForm form = staging_form_of(**kernel);
  const Expected<StagedTokens> staged = kernels_->staging.stage(form, x, workspace, stream);
  if (!staged) return fail("{}: {}", name_, staged.error().message);
  const int64_t used = staging_bytes(form, x.tokens, x.cols);
  return multiply_staged(**kernel, *staged, y, {workspace.address + static_cast<Address>(used), workspace.bytes - used},
                         stream);
}

Status DeviceLinear::multiply_staged(const Candidate& kernel, const StagedTokens& x, const Output& y,
                                     const Workspace& workspace, const Stream& stream) const {
  if (const Status sound = check_output(name_, y, rows_); !sound) return sound;
  const bool encoded = octalane::restaged(kernel.staged);
  const std::optional<DeviceWeights>& weights = encoded ? encoded_ : exact_;
  if (!kernel.refusal.empty()) return fail("{}: {}: {}", name_, kernel.kernel, kernel.refusal);
  if (!weights) return fail("{}: {}: weights were bound without what it reads", name_, kernel.kernel);
  Status done;
  if (kernel.gemv != nullptr) {
    const int64_t partials = partial_bytes(x.tokens);
    if (workspace.bytes < partials) {
      return fail("{}: wanted a workspace of {} bytes for partial sums, got {}", name_, partials, workspace.bytes);
    }
    done = kernels_->gemvs.multiply(*kernel.gemv, *weights, x, y, stream, partials > 0 ? workspace.address : 0);
  } else {
    done = kernels_->products.multiply(*kernel.gemm, *weights, x, y, stream);
  }
  return done ? done : fail("{}: {}", name_, done.error().message);
}

Status DeviceLinear::multiply_host(MatrixView<const float> x, MatrixView<float> y) const {
  if (x.cols != cols_ || y.rows != x.rows || y.cols != rows_ || !y.contiguous_rows()) {
    return fail("{}: wanted {} input columns and a row-major {} x {} output, got {} and {} x {} (column stride {})",
                name_, cols_, x.rows, rows_, x.cols, y.rows, y.cols, y.col_stride);
  }
  if (x.rows == 0) return {};
  std::vector<float> dense(static_cast<size_t>(x.rows * x.cols));
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t k = 0; k < x.cols; ++k) dense[static_cast<size_t>(m * x.cols + k)] = x(m, k);
  }
  const Session& session = *kernels_->session;
  const Expected<Buffer> from = session.allocate(x.rows * cols_ * 4);
  if (!from) return fail_with(from);
  const Expected<Buffer> to = session.allocate(x.rows * rows_ * 4);
  if (!to) return fail_with(to);
  const Expected<Buffer> workspace = session.allocate(workspace_bytes(x.rows));
  if (!workspace) return fail_with(workspace);
  const Expected<Stream> stream = session.stream();
  if (!stream) return fail_with(stream);
  if (const Status s = session.copy_in(*from, std::as_bytes(std::span(dense))); !s) return s;
  const Status enqueued = multiply({from->address(), true, x.rows, cols_, cols_}, {to->address(), true, rows_},
                                   {workspace->address(), workspace->bytes()}, *stream);
  // Whatever was enqueued uses this memory: it is waited for even behind an error.
  const Status done = stream->synchronize();
  if (!enqueued) return enqueued;
  if (!done) return done;
  dense.resize(static_cast<size_t>(x.rows * rows_));
  if (const Status s = session.copy_out(std::as_writable_bytes(std::span(dense)), *to); !s) return s;
  for (int64_t m = 0; m < y.rows; ++m) {
    std::memcpy(y.row(m), dense.data() + m * rows_, static_cast<size_t>(rows_) * sizeof(float));
  }
  return {};
}

}  // namespace octalane::cuda
