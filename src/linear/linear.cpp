#include "linear/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/parallel.h"
#include "core/restage.h"
#include "kernels/registry.h"

namespace octalane {

Expected<Linear> Linear::bind(Context& context, std::string name, const StoredMatrix& weights) {
  const Format& format = *weights.format;
  const int64_t rows = weights.rows, cols = weights.cols;
  if (rows < 1 || cols < 1) return fail("{}: wanted at least 1 x 1 weights, got {} x {}", name, rows, cols);
  if (const Status sound = weights.check(); !sound) return fail("{}: {}", name, sound.error().message);
  Linear linear;
  linear.name_ = std::move(name);
  linear.format_ = &format;
  Expected<Binding> binding =
      plan_binding(context, linear.name_, format.spec, rows, cols, context.lanes_of(linear.name_));
  if (!binding) return fail_with(binding);
  linear.binding_ = *binding;
  linear.packed_ = std::make_shared<const PackedWeights>(PackedWeights::pack(
      format.spec, binding->order, rows, cols, context.threads(),
      [&](int64_t row, const PlaneRow& out) { weights.to_planes(row, out); }, weights.codebooks()));
  linear.encode_again(context);
  return linear.or_in_another_lane(context);
}

Expected<Linear> Linear::with_lanes(Context& context, const LaneSelection& lanes) const {
  const Expected<Binding> binding = plan_binding(context, name_, weights().spec, rows(), cols(), lanes);
  if (!binding) return fail_with(binding);
  Linear other = *this;
  other.binding_ = *binding;
  const bool same_order = binding->order == binding_.order;
  if (!same_order) {
    other.packed_ = std::make_shared<const PackedWeights>(PackedWeights::pack(
        weights().spec, binding->order, rows(), cols(), context.threads(),
        [&](int64_t row, const PlaneRow& out) { unpack_row(weights(), row, out); }, weights().codebook_values()));
  }
  if (!same_order || binding->restaged != binding_.restaged) other.encode_again(context);
  other.fallback_.clear();
  return other.or_in_another_lane(context);
}

Expected<Linear> Linear::or_in_another_lane(Context& context) const {
  if (restaged_ == nullptr || context.plan_inputs().kernel != nullptr) return *this;
  const std::string why = why_unfit(weights().spec, *restaged_);
  if (why.empty()) return *this;
  const Lane lane = info(restaged_->type).lane;
  const StagedType instead = lane == Lane::f8 ? StagedType::f8_group : StagedType::s8_group;
  LaneSelection lanes = binding_.lanes;
  if (lanes.forced) lanes.forced = instead;
  for (const StagedTypeInfo& row : kStagedTypes) {
    if (row.lane == lane && octalane::restaged(row.type)) lanes.lossy.erase(row.type);
  }
  Expected<Linear> other = with_lanes(context, lanes);
  if (!other) return other;
  other->fallback_ =
      fmt::format("{} {}: {}", lanes.forced ? fmt::format("{} instead of", octalane::name(instead)) : "not",
                  octalane::name(restaged_->type), why);
  return other;
}

/// Makes the scales that the binding asks for.
void Linear::encode_again(const Context& context) {
  restaged_ = nullptr;
  if (!binding_.restaged) return;
  restaged_ = std::make_shared<const Restaged>(restage(weights(), *binding_.restaged, context.threads()));
}

Problem Linear::problem(int64_t tokens) const { return {tokens, rows(), cols(), weights().spec, {}}; }

Choice Linear::choose(const Context& context, int64_t tokens) const {
  return choose_kernel(problem(tokens), binding_.inputs(context));
}

Expected<Plan> Linear::plan(const Context& context, int64_t tokens) const {
  Expected<Plan> plan = make_plan(problem(tokens), binding_.inputs(context));
  if (!plan) return fail("{}: {}", name_, plan.error().message);
  if (!fallback_.empty()) plan->reason = fmt::format("{}; {}", fallback_, plan->reason);
  return plan;
}

Status Linear::multiply(Context& context, MatrixView<const float> x, MatrixView<float> y) const {
  Activations activations(context, x);
  return multiply(context, activations, y);
}

Status Linear::multiply(Context& context, Activations& x, MatrixView<float> y) const {
  const Linear* const alone[] = {this};
  return multiply(context, alone, x, {&y, 1});
}

Expected<Linear::Task> Linear::prepare(Context& context, Activations& x, MatrixView<float> y) const {
  const MatrixView<const float> source = x.source();
  if (source.cols != cols()) return fail("{}: wanted {} input columns, got {}", name_, cols(), source.cols);
  if (y.rows != source.rows || y.cols != rows() || !y.contiguous_rows()) {
    return fail("{}: wanted a row-major {} x {} output, got {} x {} (column stride {})", name_, source.rows, rows(),
                y.rows, y.cols, y.col_stride);
  }
  if (source.rows == 0) return Task{this, nullptr, nullptr, y, 0};
  const Choice choice = choose(context, source.rows);
  if (choice.kernel == nullptr) return fail_with(plan(context, source.rows));
  const Kernel& kernel = *choice.kernel;

  Problem task = problem(source.rows);
  task.staged = kernel.staged;
  context.reserve_scratch(kernel.scratch_bytes(task));
  KernelUse& use = context.uses_[octalane::name(kernel)];
  use.staged = kernel.staged;
  use.calls += 1;
  if (use.fallback.empty() && !fallback_.empty()) use.fallback = fmt::format("{}: {}", name_, fallback_);
  use.ops += 2.0 * static_cast<double>(source.rows) * static_cast<double>(rows() * cols());
  const int64_t together = std::max(1, kernel.tile.n / kernel.order.rows);
  return Task{this, &kernel, &x.get(choice, weights()), y, (weights().tiles + together - 1) / together};
}

void Linear::Task::run(Context& context, int thread, int64_t grain_begin, int64_t grain_end) const {
  const int64_t together = std::max(1, kernel->tile.n / kernel->order.rows);
  kernel->run({.w = linear->weights(),
               .x = *x,
               .y = y,
               .tile_begin = grain_begin * together,
               .tile_end = std::min(grain_end * together, linear->weights().tiles),
               .scratch = context.scratch(thread),
               .restage = octalane::restaged(kernel->staged) ? linear->restaged_->scales.data() : nullptr});
}

Status Linear::multiply(Context& context, std::span<const Linear* const> weights, Activations& x,
                        std::span<const MatrixView<float>> y) {
  std::vector<Task> tasks;
  int64_t grains = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    Expected<Task> task = weights[i]->prepare(context, x, y[i]);
    if (!task) return fail_with(task);
    grains += task->grains;
    tasks.push_back(*task);
  }
  parallel_for(context.threads(), grains, 1, [&](int thread, int64_t begin, int64_t end) {
    for (const Task& task : tasks) {
      if (begin < task.grains && end > 0) {
        task.run(context, thread, std::max<int64_t>(begin, 0), std::min(end, task.grains));
      }
      begin -= task.grains;
      end -= task.grains;
    }
  });
  return {};
}

void Linear::decode_row(int64_t row, float* out) const {
  const Planes planes(weights().spec, 1, cols(), weights().codebooks.values);
  unpack_row(weights(), row, planes.row(0));
  octalane::decode_row(weights().spec, planes.row(0), cols(), out);
}

}  // namespace octalane
