// The one entry point to kernels: bind weights once, then y = x W^T through the plan.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/activations_view.h"
#include "core/aligned_buffer.h"
#include "core/status.h"
#include "formats/format.h"
#include "linear/binding.h"
#include "linear/lane_rules.h"
#include "plan/plan.h"
#include "weights/pack.h"
#include "weights/restage.h"

namespace octalane {

struct ContextOptions {
  int threads = 0;                       ///< 0 = usable_cores()
  std::string isa;                       ///< force an instruction set by name; empty = every one this machine has
  std::optional<StagedType> lane;        ///< force a lane; empty = auto, the stock lane and what `rules` grant
  bool wrong_results = false;            ///< accept kernels of an ablation build, to time them
  std::shared_ptr<const Rates> rates{};  ///< what plans are made from; null = the nominal rates
  const Kernel* kernel = nullptr;        ///< force a kernel; null = the plan's
  /// Lanes by tensor, in place of `lane` where a rule matches. Null = none. The stock lane by name is the way to turn
  /// every lossy lane off: with it as `lane`, rules are not looked at.
  std::shared_ptr<const LaneRules> rules{};
};

/// What a kernel did since the context was made.
struct KernelUse {
  StagedType staged;
  int64_t calls = 0;
  double ops = 0;  ///< 2 M N K summed
  /// Why it ran in place of a kernel of the lane asked for: the first weights that did so, and their reason; or empty.
  std::string fallback{};
};

/// The machine as one caller may use it: instruction sets, threads, scratch memory. Not shared by threads that call at
/// the same time.
class Context {
 public:
  /// Fails when the forced instruction set is unknown or not on this machine; the error says which there are. Fails in
  /// an ablation build, unless wrong results are accepted.
  static Expected<Context> create(const ContextOptions& options = {});

  int threads() const { return threads_; }
  /// Attention and the maths of rows, of the fastest instruction set allowed: they serve the model.
  void attend(const AttendArgs& args) const { attend_(args); }
  const RowMath& rows() const { return *rows_; }
  /// Without the lanes that rules say: those depend on the tensor.
  PlanInputs plan_inputs() const {
    return {.isas = isas_,
            .rates = rates_.get(),
            .lane = lane_,
            .allowed = {},
            .order = {},
            .restaged = {},
            .kernel = kernel_};
  }
  /// The lanes that weights of this name are bound for.
  LaneSelection lanes_of(std::string_view tensor) const;
  /// Kernels engaged so far, by name.
  const std::map<std::string, KernelUse>& uses() const { return uses_; }

 private:
  friend class Linear;
  std::byte* scratch(int thread) { return scratch_[static_cast<size_t>(thread)].data(); }
  void reserve_scratch(int64_t bytes_per_thread);
  void take_row_functions();

  int threads_ = 1;
  std::vector<const IsaTable*> isas_;
  void (*attend_)(const AttendArgs&) = nullptr;
  const RowMath* rows_ = nullptr;
  std::optional<StagedType> lane_;
  std::shared_ptr<const Rates> rates_;
  const Kernel* kernel_ = nullptr;
  std::shared_ptr<const LaneRules> rules_;
  std::vector<AlignedBuffer<std::byte>> scratch_;  // one per thread
  std::map<std::string, KernelUse> uses_;
};

/// One layer input. The forms that kernels ask for are made once and kept, so products that share an input share its
/// quantization. `x` must outlive it; any strides (a transposed view is copied).
class Activations {
 public:
  Activations(const Context& context, MatrixView<const float> x);
  /// Rows that are still to be made: fill(r) writes row r of x, once, on the thread that then puts it into its first
  /// form, so that it is still in the cache. x.col_stride == 1.
  Activations(const Context& context, MatrixView<const float> x, std::function<void(int64_t row)> fill);
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  MatrixView<const float> source() const { return x_; }
  /// x in the form that the kernel of this choice multiplies with these weights.
  const ActivationsView& get(const Choice& choice, const PackedView& weights);

 private:
  struct Made {
    ActivationsView view;
    const IsaTable* isa;  // whose quantizer made it
    AlignedBuffer<float> f32, scales;
    AlignedBuffer<int8_t> codes;
    AlignedBuffer<int32_t> sums;
    AlignedBuffer<uint16_t> bf16;
  };
  Made make(const Choice& choice, const ActivationGroups& groups, int64_t stride);

  int threads_;
  MatrixView<const float> x_;
  std::function<void(int64_t row)> fill_;  ///< empty: x is there
  std::vector<float> copy_;
  std::vector<std::unique_ptr<Made>> made_;
};

/// A weight matrix W[N, K] bound to a machine: packed once, multiplied often. Copies share what was packed.
class Linear {
 public:
  /// What `weights` refers to may be dropped afterwards. `name` decides the lanes, by the context's rules, and is used
  /// in errors. Fails when weights.check() does, or no allowed kernel can serve the weights.
  /// Weights that a lane with one scale per row or block would spoil (weights/restage.h) are bound without it, for
  /// s8.group or f8.group where it was forced, and fallback() says so; a kernel forced by name runs all the same.
  static Expected<Linear> bind(Context& context, std::string name, const StoredMatrix& weights);
  /// The same for rows of blocks that follow each other.
  static Expected<Linear> bind(Context& context, std::string name, const Format& format, const std::byte* data,
                               int64_t rows, int64_t cols) {
    return bind(context, std::move(name), {&format, rows, cols, {data}});
  }

  /// The same weights for other lanes: packed weights are shared, unless those lanes need another tile order, and the
  /// scales of a re-encoding are made when they are missing. Fails as bind does.
  Expected<Linear> with_lanes(Context& context, const LaneSelection& lanes) const;
  const LaneSelection& lanes() const { return binding_.lanes; }

  /// y[M, N] = x[M, K] W^T, y.col_stride == 1. M = 0 does nothing. Each y(m, n) is the same to the bit for every number
  /// of threads and for every M (the accumulation order of an output depends on K alone).
  /// Errors: x.cols != K, y of a wrong shape.
  Status multiply(Context& context, Activations& x, MatrixView<float> y) const;
  Status multiply(Context& context, MatrixView<const float> x, MatrixView<float> y) const;

  /// Several products of one input, y[i] = x W[i]^T, shared out to the threads as one: for few tokens each alone is too
  /// small. The same bits as one after another.
  static Status multiply(Context& context, std::span<const Linear* const> weights, Activations& x,
                         std::span<const MatrixView<float>> y);

  /// The plan that multiply follows for M tokens.
  Expected<Plan> plan(const Context& context, int64_t tokens) const;
  /// The kernel of that plan, without its reasons.
  Choice choose(const Context& context, int64_t tokens) const;

  /// Row n of W in fp32, bit-exact with the format's definition.
  void decode_row(int64_t row, float* out) const;

  const std::string& name() const { return name_; }
  const Format& format() const { return *format_; }
  int64_t rows() const { return packed_->view().rows; }
  int64_t cols() const { return packed_->view().cols; }
  int64_t bytes() const { return packed_->bytes(); }
  const PackedView& weights() const { return packed_->view(); }
  /// The int8 scales of the re-encoding that these weights were bound for; null: none, and lanes that need one cannot
  /// serve them.
  const Restaged* restaged() const { return restaged_.get(); }
  /// Why these weights do not run in the lane asked for, in one line; empty = they do.
  const std::string& fallback() const { return fallback_; }

 private:
  /// One product made ready: everything but the tiles.
  struct Task {
    const Linear* linear;
    const Kernel* kernel;
    const ActivationsView* x;
    MatrixView<float> y;
    int64_t grains;  ///< of as many tiles as the kernel takes together

    void run(Context& context, int thread, int64_t grain_begin, int64_t grain_end) const;
  };
  Expected<Task> prepare(Context& context, Activations& x, MatrixView<float> y) const;

  Problem problem(int64_t tokens) const;
  void encode_again(const Context& context);
  /// These weights, bound for another lane where their re-encoding would spoil them.
  Expected<Linear> or_in_another_lane(Context& context) const;

  std::string name_;
  const Format* format_ = nullptr;
  Binding binding_;
  std::shared_ptr<const PackedWeights> packed_ = std::make_shared<const PackedWeights>();
  std::shared_ptr<const Restaged> restaged_;  // of binding_.restaged
  std::string fallback_;
};

}  // namespace octalane
