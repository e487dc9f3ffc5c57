#include "cli/cuda_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "cli/cuda_product_check.h"
#include "cli/random_blocks.h"
#include "cli/random_tokens.h"
#include "core/half.h"
#include "core/parallel.h"
#include "core/restage.h"
#include "weights/pack.h"

namespace octalane::cli {
namespace {

using cuda::Address;
using cuda::Buffer;
using cuda::DeviceWeights;
using cuda::StagedTokens;
using cuda::StagingForm;

constexpr StagedType kLanes[] = {StagedType::bf16,     StagedType::s8_group,  StagedType::s8_nested,
                                 StagedType::s8_block, StagedType::s8_xblock, StagedType::s8_row,
                                 StagedType::f8_group, StagedType::f8_row};

/// Weights as they are, or one re-encoding, in as many copies as keep them out of L2.
struct Stored {
  std::optional<Restaged> restaged;
  std::vector<DeviceWeights> copies;
};

/// Activations staged in one form, likewise.
struct Staged {
  StagingForm form;
  std::vector<Buffer> memory;
  std::vector<StagedTokens> copies;
};

struct KernelArm {
  std::string name;
  StagedType lane;
  const cuda::GemmKernel* gemm = nullptr;
  const cuda::GemvKernel* gemv = nullptr;
  Stored* weights = nullptr;
  Staged* tokens = nullptr;
  ProductErrors errors{};
};

class Bench {
 public:
  Bench(const cuda::LinearKernels& kernels, const cuda::Stream& stream, const LtApi* lt, const ProductsOptions& options)
      : kernels_(kernels), session_(*kernels.session), stream_(stream), lt_(lt), options_(options) {}

  Expected<Json> run() {
    if (const Status s = make(); !s) return fail_with(s);
    std::vector<Arm> arms;
    for (KernelArm& arm : arms_) {
      if (const Status s = check(arm); !s) return fail_with(s);
      const auto copies = static_cast<int64_t>(y_.size());
      arms.push_back({arm.name, copies, [this, &arm](const cuda::Stream& on, int64_t i) {
                        const auto copy = static_cast<size_t>(i) % y_.size();
                        return enqueue(arm, copy, {y_[copy].address(), arm.gemv != nullptr, options_.rows}, on);
                      }});
    }
    if (const Status s = add_peers(arms); !s) return fail_with(s);
    Expected<RotationResult> timed = time_arms(session_, stream_, arms, options_.rotation);
    if (!timed) return fail_with(timed);
    return report(*timed);
  }

 private:
  double ops() const {
    return 2.0 * static_cast<double>(options_.tokens) * static_cast<double>(options_.rows) *
           static_cast<double>(options_.cols);
  }

  Status make() {
    const Format* format = find_format(options_.format);
    if (format == nullptr) return fail("{}: no such format", options_.format);
    if (options_.cols % format->block != 0)
      return fail("{}: {} columns are not a multiple of {}", options_.format, options_.cols, format->block);
    const double deviation = 1 / std::sqrt(static_cast<double>(options_.cols));
    const int threads = usable_cores();
    const RandomMatrix random = random_matrix(*format, options_.rows, options_.cols, deviation, options_.seed, threads);
    packed_ = PackedWeights::pack(format->spec, {.rows = 16}, options_.rows, options_.cols, threads,
                                  [&](int64_t row, const PlaneRow& out) { random.matrix.to_planes(row, out); });
    x_ = random_tokens(options_.activations, options_.tokens, options_.cols, options_.seed + 1);
    Expected<Buffer> x = session_.upload(std::as_bytes(std::span(x_)));
    if (!x) return fail_with(x);
    const int64_t bytes = options_.rows * options_.cols / 2 + options_.tokens * options_.cols;
    copies_ = copies_beyond_l2(bytes, session_.device().l2_bytes);
    for (int64_t i = 0; i < copies_; ++i) {
      Expected<Buffer> y = session_.allocate(options_.tokens * options_.rows * 4);
      if (!y) return fail_with(y);
      y_.push_back(std::move(*y));
    }
    for (const StagedType lane : kLanes) {
      const bool wanted = options_.lanes.empty() ||
                          std::find(options_.lanes.begin(), options_.lanes.end(), lane) != options_.lanes.end();
      if (!wanted || !cuda::why_no_records(packed_.view().spec, lane).empty()) continue;
      if (const Status s = add_lane(lane, *x); !s) return s;
    }
    return arms_.empty() ? fail("{}: no kernel of these lanes and names serves it", options_.format) : Status{};
  }

  Status add_lane(StagedType lane, const Buffer& x) {
    const StagedType encoding = restaged(lane) ? cuda::encoding_of(lane) : StagedType::bf16;
    Stored& stored = stored_[encoding];
    if (stored.copies.empty()) {
      const int threads = usable_cores();
      if (restaged(lane)) stored.restaged = restage(packed_.view(), encoding, threads);
      Expected<cuda::Records> records =
          cuda::pack_records(packed_.view(), encoding, stored.restaged ? &*stored.restaged : nullptr, threads);
      if (!records) return fail_with(records);
      for (int64_t i = 0; i < copies_; ++i) {
        Expected<DeviceWeights> copy = DeviceWeights::upload(session_, *records);
        if (!copy) return fail_with(copy);
        stored.copies.push_back(std::move(*copy));
      }
    }
    const cuda::Records& about = stored.copies.front().about();
    const auto add = [&](KernelArm arm, const StagingForm& form) -> Status {
      const Expected<Staged*> tokens = staged(form, x);
      if (!tokens) return fail_with(tokens);
      arm.weights = &stored, arm.tokens = *tokens;
      arms_.push_back(std::move(arm));
      return {};
    };
    for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) {
      if (kernel.staged != lane || !wanted(kernel) || !cuda::why_not(kernel, about).empty()) continue;
      const StagingForm form = cuda::staging_form(lane, packed_.view().spec.scale.group);
      if (const Status s = add({.name = cuda::name(kernel), .lane = lane, .gemm = &kernel}, form); !s) return s;
    }
    for (const cuda::GemvKernel& kernel : cuda::gemv_kernels()) {
      if (lane != StagedType::bf16 || !named(cuda::name(kernel)) || options_.tokens > kernel.tokens ||
          !cuda::why_not(kernel, about, session_.device()).empty())
        continue;
      const StagingForm form = cuda::staging_form(kernel);
      if (const Status s = add({.name = cuda::name(kernel), .lane = lane, .gemv = &kernel}, form); !s) return s;
    }
    return {};
  }

  bool named(const std::string& kernel) const { return kernel.find(options_.kernel) != std::string::npos; }
  bool wanted(const cuda::GemmKernel& kernel) const {
    const bool has_wgmma = session_.device().capability == 90;
    if (!cuda::why_not(kernel, session_.device()).empty()) return false;
    return options_.kernel.empty() ? !(kernel.by_mma() && has_wgmma) : named(cuda::name(kernel));
  }

  /// Activations in this form, staged once.
  Expected<Staged*> staged(const StagingForm& form, const Buffer& x) {
    for (auto& staged : staged_) {
      if (staged->form == form) return staged.get();
    }
    Expected<Staged> made = stage(form, x);
    if (!made) return fail_with(made);
    staged_.push_back(std::make_unique<Staged>(std::move(*made)));
    return staged_.back().get();
  }

  Expected<Staged> stage(const StagingForm& form, const Buffer& x) {
    Staged staged{form, {}, {}};
    for (int64_t i = 0; i < copies_; ++i) {
      const int64_t bytes = cuda::staging_bytes(form, options_.tokens, options_.cols);
      Expected<Buffer> memory = session_.allocate(bytes);
      if (!memory) return fail_with(memory);
      Expected<StagedTokens> tokens =
          kernels_.staging.stage(form, {x.address(), true, options_.tokens, options_.cols, options_.cols},
                                 {memory->address(), bytes}, stream_);
      if (!tokens) return fail_with(tokens);
      staged.memory.push_back(std::move(*memory));
      staged.copies.push_back(*tokens);
    }
    if (const Status s = stream_.synchronize(); !s) return fail_with(s);
    return staged;
  }

  Status enqueue(const KernelArm& arm, size_t copy, const cuda::Output& y, const cuda::Stream& stream) const {
    const DeviceWeights& weights = arm.weights->copies[copy];
    const StagedTokens& x = arm.tokens->copies[copy];
    if (arm.gemv != nullptr) return kernels_.gemvs.multiply(*arm.gemv, weights, x, y, stream);
    return kernels_.products.multiply(*arm.gemm, weights, x, y, stream, {options_.promote_cols, 0});
  }

  Status check(KernelArm& arm) {
    if (const Status s = stream_.fill(y_[0].address(), 0xFF, y_[0].bytes()); !s) return s;
    if (const Status s = enqueue(arm, 0, {y_[0].address(), true, options_.rows}, stream_); !s) return s;
    if (const Status s = stream_.synchronize(); !s) return s;
    Expected<ProductErrors> errors = measure_errors(
        stream_, {packed_.view(), arm.weights->restaged ? &*arm.weights->restaged : nullptr,
                  arm.gemm != nullptr && arm.lane == StagedType::bf16, x_, arm.tokens->form, arm.tokens->copies[0],
                  y_[0].address(), options_.activations == "outlier" ? outlier_channel(options_.cols) : -1});
    if (!errors) return fail_with(errors);
    arm.errors = *errors;
    // E4M3 sums keep fewer bits: what promotion leaves of that, on values of both signs.
    const double most =
        info(arm.lane).lane == Lane::f8 ? 2e-3 : std::max(1e-6, static_cast<double>(options_.cols) * 0x1p-24);
    if (!(errors->kernel <= most)) {
      return fail("{}: wanted a kernel error of at most {:.2e}, got {:.2e}: not timed", arm.name, most, errors->kernel);
    }
    return {};
  }

  Status add_peers(std::vector<Arm>& arms) {
    if (lt_ == nullptr || !options_.peers) return {};
    for (const LtKind kind : {LtKind::bf16, LtKind::s8, LtKind::f8}) {
      const LtProblem problem{kind, options_.tokens, options_.rows, options_.cols, true};
      const int64_t copies = copies_beyond_l2(problem.x_bytes() + problem.w_bytes(), session_.device().l2_bytes);
      std::vector<LtOperands> operands;
      for (int64_t i = 0; i < copies; ++i) {
        Expected<Address> x = dense(kind, problem.x_bytes()), w = dense(kind, problem.w_bytes());
        if (!x) return fail_with(x);
        if (!w) return fail_with(w);
        Expected<Buffer> y = session_.allocate(problem.y_bytes());
        if (!y) return fail_with(y);
        operands.push_back({*x, *w, y->address()});
        dense_.push_back(std::move(*y));
      }
      Expected<LtProduct> tuned = LtProduct::tune(*lt_, session_, stream_, problem, operands);
      if (!tuned) {
        refused_.push_back(tuned.error().message);
        continue;
      }
      peers_.push_back(std::make_unique<LtProduct>(std::move(*tuned)));
      const LtProduct* product = peers_.back().get();
      const char* names[] = {"cublaslt bf16", "cublaslt int8", "cublaslt fp8"};
      arms.push_back({names[static_cast<int>(kind)], copies, [product, operands](const cuda::Stream& on, int64_t i) {
                        return product->run(operands[static_cast<size_t>(i) % operands.size()], on);
                      }});
    }
    return {};
  }

  /// Gaussian operands of the vendor's product.
  Expected<Address> dense(LtKind kind, int64_t bytes) {
    const int width = kind == LtKind::bf16 ? 2 : 1;
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    std::vector<float> pool(1 << 20);
    Gaussian(options_.seed + 2 + dense_.size()).fill(pool, 1);
    for (int64_t i = 0; i < bytes / width; ++i) {
      const float v = pool[static_cast<size_t>(i * 7919 + i / static_cast<int64_t>(pool.size())) % pool.size()];
      if (kind == LtKind::bf16) {
        const uint16_t bits = f32_to_bf16(v);
        std::memcpy(&data[static_cast<size_t>(i * 2)], &bits, 2);
      } else {
        const auto code = static_cast<int8_t>(std::clamp(v * 32, -127.0f, 127.0f));
        data[static_cast<size_t>(i)] =
            static_cast<std::byte>(kind == LtKind::f8 ? f32_to_e4m3(v * 32) : static_cast<uint8_t>(code));
      }
    }
    Expected<Buffer> buffer = session_.upload(data);
    if (!buffer) return fail_with(buffer);
    dense_.push_back(std::move(*buffer));
    return dense_.back().address();
  }

  Json report(const RotationResult& timed) const {
    Json cell{
        {"format", options_.format}, {"tokens", options_.tokens}, {"rows", options_.rows}, {"cols", options_.cols}};
    cell["promote_cols"] = options_.promote_cols;
    cell["state_before"] = state_json(timed.before);
    cell["state_after"] = state_json(timed.after);
    const ArmSamples* bf16 = nullptr;
    for (const ArmSamples& samples : timed.arms) {
      if (samples.name == "cublaslt bf16") bf16 = &samples;
    }
    Json arms = Json::array();
    for (size_t i = 0; i < timed.arms.size(); ++i) {
      const ArmSamples& samples = timed.arms[i];
      const double seconds = median(samples.seconds);
      Json arm{{"name", samples.name}, {"tops", ops() / seconds * 1e-12}};
      if (bf16 != nullptr) arm["over_cublaslt_bf16"] = median_speedup(samples, *bf16);
      if (i < arms_.size()) {
        const KernelArm& kernel = arms_[i];
        const int64_t weight_bytes = cuda::read_bytes(kernel.weights->copies.front().about());
        arm["lane"] = name(kernel.lane);
        arm["kernel_error"] = kernel.errors.kernel;
        arm["total_error"] = kernel.errors.total;
        arm["rest_error"] = kernel.errors.rest;
        arm["weight_error"] = kernel.weights->restaged ? kernel.weights->restaged->relative_error : 0.0;
        arm["weight_bytes"] = weight_bytes;
        arm["weight_gbps"] = static_cast<double>(weight_bytes) / seconds * 1e-9;
      } else {
        arm["algorithm"] = describe(peers_[i - arms_.size()]->best());
      }
      arm["samples"] = samples_json(samples);
      arms.push_back(std::move(arm));
    }
    cell["arms"] = std::move(arms);
    if (!refused_.empty()) cell["not_run"] = refused_;
    return cell;
  }

  const cuda::LinearKernels& kernels_;
  const cuda::Session& session_;
  const cuda::Stream& stream_;
  const LtApi* lt_;
  const ProductsOptions& options_;
  PackedWeights packed_;
  std::vector<float> x_;
  int64_t copies_ = 1;
  std::vector<Buffer> y_, dense_;
  std::map<StagedType, Stored> stored_;
  std::vector<std::unique_ptr<Staged>> staged_;
  std::vector<KernelArm> arms_;
  std::vector<std::unique_ptr<LtProduct>> peers_;
  std::vector<std::string> refused_;
};

}  // namespace

Expected<Json> products_bench(const cuda::LinearKernels& kernels, const cuda::Stream& stream, const LtApi* lt,
                              const ProductsOptions& options) {
  return Bench(kernels, stream, lt, options).run();
}

}  // namespace octalane::cli
