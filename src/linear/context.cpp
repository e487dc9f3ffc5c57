#include <fmt/format.h>

#include "core/ablation.h"
#include "core/parallel.h"
#include "kernels/registry.h"
#include "linear/linear.h"

namespace octalane {

Expected<Context> Context::create(const ContextOptions& options) {
  Context context;
  if (kAblation != Ablation::none && !options.wrong_results) {
    return fail("this build: wanted whole kernels, got OCTALANE_ABLATION={}, which can only be timed (bench gemm)",
                name(kAblation));
  }
  if (options.threads < 0) return fail("threads: wanted at least 1, got {}", options.threads);
  context.threads_ = options.threads > 0 ? options.threads : usable_cores();
  context.lane_ = options.lane;
  context.rates_ = options.rates;
  context.kernel_ = options.kernel;
  const bool off = options.lane && info(*options.lane).stock;
  if (!off) context.rules_ = options.rules;
  if (options.isa.empty()) {
    for (const IsaTable* isa : isa_tables()) {
      if (isa->unavailable().empty()) context.isas_.push_back(isa);
    }
    context.take_row_functions();
    return context;
  }
  const IsaTable* forced = find_isa(options.isa);
  if (forced == nullptr) {
    std::string known;
    for (const IsaTable* isa : isa_tables()) known += fmt::format("{}{}", known.empty() ? "" : ", ", isa->name);
    return fail("instruction set {}: wanted one of {}", options.isa, known);
  }
  if (const std::string why = forced->unavailable(); !why.empty()) {
    return fail("instruction set {}: not on this machine ({})", options.isa, why);
  }
  for (; forced != nullptr; forced = forced->extends != nullptr ? find_isa(forced->extends) : nullptr) {
    context.isas_.insert(context.isas_.begin(), forced);
  }
  context.take_row_functions();
  return context;
}

LaneSelection Context::lanes_of(std::string_view tensor) const {
  const LaneRule* rule = rules_ != nullptr ? rules_->find(tensor) : nullptr;
  const std::optional<StagedType> forced = rule != nullptr ? rule->lane : lane_;
  if (forced || rules_ == nullptr) return {forced, {}};
  return {{}, rules_->granted(tensor)};
}

void Context::take_row_functions() {
  attend_ = octalane::attend(*isas_.back());
  rows_ = &row_math(*isas_.back());
}

void Context::reserve_scratch(int64_t bytes_per_thread) {
  scratch_.resize(static_cast<size_t>(threads_));
  for (AlignedBuffer<std::byte>& buffer : scratch_) buffer.reserve_discarding(bytes_per_thread);
}

}  // namespace octalane
