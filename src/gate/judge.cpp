#include "gate/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/kernel.h"

namespace octalane {
namespace {

/// The larger one; NaN when one is.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// The tensors of the first `count` groups.
std::vector<std::string> tensors_of(const std::vector<TensorGroup>& groups, size_t count) {
  std::vector<std::string> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.insert(tensors.end(), groups[i].tensors.begin(), groups[i].tensors.end());
  }
  return tensors;
}

/// What each kernel of the lane lacks to serve this problem, each reason once; empty = one of them can.
std::string obstacles(const Context& context, const Problem& problem) {
  std::vector<std::string> reasons;
  for (const IsaTable* isa : context.plan_inputs().isas) {
    for (const Kernel& kernel : isa->kernels) {
      if (kernel.staged != problem.staged) continue;
      std::string why = kernel.supports(problem);
      if (why.empty()) return "";
      if (std::ranges::find(reasons, why) == reasons.end()) reasons.push_back(std::move(why));
    }
  }
  return reasons.empty() ? "no kernel of this lane for this machine" : fmt::format("{}", fmt::join(reasons, "; "));
}

/// A name up to the first part of it that is a number: "blk.3" of "blk.3.ffn_down.weight"; all of it without one.
std::string block_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (end > begin && name.find_first_not_of("0123456789", begin) >= end) return name.substr(0, end);
    begin = end + 1;
  }
  return name;
}

}  // namespace

Comparison worst_of(std::span<const Comparison> texts) {
  Comparison worst = texts[0];
  for (const Comparison& text : texts.subspan(1)) {
    worst.ppl_ratio = larger(worst.ppl_ratio, text.ppl_ratio);
    worst.ppl_ratio_error = larger(worst.ppl_ratio_error, text.ppl_ratio_error);
    worst.kld_mean = larger(worst.kld_mean, text.kld_mean);
    worst.kld_error = larger(worst.kld_error, text.kld_error);
    worst.kld_p99 = larger(worst.kld_p99, text.kld_p99);
    worst.kld_max = larger(worst.kld_max, text.kld_max);
    worst.top1 = -larger(-worst.top1, -text.top1);
  }
  return worst;
}

std::string why_fails(const Comparison& worst, const Thresholds& thresholds) {
  std::string why;
  const auto add = [&](const std::string& part) { why += (why.empty() ? "" : "; ") + part; };
  if (!(worst.ppl_ratio <= thresholds.max_ppl_ratio)) {
    add(fmt::format("perplexity ratio {:.6f}, wanted at most {}", worst.ppl_ratio, thresholds.max_ppl_ratio));
  }
  if (!(worst.kld_mean <= thresholds.max_kld)) {
    add(fmt::format("mean KL divergence {:.6f}, wanted at most {}", worst.kld_mean, thresholds.max_kld));
  }
  if (!(worst.top1 >= thresholds.min_top1)) {
    add(fmt::format("same top token {:.4f}, wanted at least {}", worst.top1, thresholds.min_top1));
  }
  return why;
}

std::vector<KeptStock> not_served(Context& context, const Model& model, StagedType lane) {
  std::vector<KeptStock> kept;
  for (const Linear* linear : model.linears()) {
    std::string why = obstacles(context, {1, linear->rows(), linear->cols(), linear->weights().spec, lane});
    if (why.empty()) {
      const Expected<Linear> bound = linear->with_lanes(context, {lane, {}});
      why = bound ? bound->fallback() : bound.error().message;
    }
    if (!why.empty()) kept.push_back({linear->name(), std::move(why)});
  }
  return kept;
}

Expected<Model> with_lane(Context& context, const Model& model, StagedType lane, const std::set<std::string>& stock) {
  return model.with_lanes(context, [&](const Linear& weights) -> LaneSelection {
    if (stock.contains(weights.name())) return {StagedType::bf16, {}};
    return {lane, {}};
  });
}

std::vector<TensorGroup> tensor_groups(const Model& model, const std::vector<KeptStock>& stock, GroupBy by) {
  std::vector<TensorGroup> groups;
  std::map<std::string, size_t> places;
  for (const Linear* linear : model.linears()) {
    const std::string& name = linear->name();
    if (std::ranges::find(stock, name, &KeptStock::tensor) != stock.end()) continue;
    const std::string group = by == GroupBy::block ? block_of(name) : name;
    const auto [place, is_new] = places.emplace(group, groups.size());
    if (is_new) groups.push_back({group, {}});
    groups[place->second].tensors.push_back(name);
  }
  return groups;
}

Judge::Judge(Context& context, const Model& stock, std::vector<Text> texts, int64_t window,
             std::function<bool(int64_t done, int64_t all)> go_on)
    : context_(context), stock_(stock), texts_(std::move(texts)), window_(window), go_on_(std::move(go_on)) {}

Expected<std::vector<std::vector<Comparison>>> Judge::compare(std::vector<Scored> candidates) const {
  std::vector<std::vector<Comparison>> out(candidates.size());
  int64_t all = 0, done = 0;
  for (const Text& text : texts_) all += static_cast<int64_t>(text.tokens.size()) / window_;
  for (const Text& text : texts_) {
    Expected<Scorer> scorer = Scorer::create({&context_, &stock_}, candidates, window_);
    if (!scorer) return fail_with(scorer);
    const std::span<const int32_t> tokens = text.tokens;
    for (size_t at = 0; at + static_cast<size_t>(window_) <= tokens.size(); at += static_cast<size_t>(window_)) {
      if (!go_on_(done++, all)) return fail("interrupted");
      if (const Status scored = scorer->add_window(tokens.subspan(at, static_cast<size_t>(window_))); !scored) {
        return fail_with(scored);
      }
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      out[i].push_back(octalane::compare(scorer->base(), scorer->other(i)));
    }
  }
  return out;
}

Expected<std::vector<Comparison>> Judge::compare_one(const Model& candidate) const {
  Expected<std::vector<std::vector<Comparison>>> one = compare({{&context_, &candidate}});
  if (!one) return fail_with(one);
  return std::move((*one)[0]);
}

Expected<std::vector<Comparison>> Judge::noise_floor() const {
  Expected<std::vector<std::vector<Comparison>>> one = compare({{&context_, &stock_, other_batch(window_)}});
  if (!one) return fail_with(one);
  return std::move((*one)[0]);
}

Expected<std::vector<Comparison>> Judge::alone(StagedType lane, const std::vector<TensorGroup>& groups) const {
  std::vector<Model> models;
  for (const TensorGroup& group : groups) {
    Expected<Model> model = stock_.with_lanes(context_, [&](const Linear& weights) -> LaneSelection {
      const bool mine = std::ranges::find(group.tensors, weights.name()) != group.tensors.end();
      return {mine ? lane : StagedType::bf16, {}};
    });
    if (!model) return fail_with(model);
    models.push_back(std::move(*model));
  }
  std::vector<Scored> candidates;
  for (const Model& model : models) candidates.push_back({&context_, &model});
  const Expected<std::vector<std::vector<Comparison>>> all = compare(std::move(candidates));
  if (!all) return fail_with(all);
  std::vector<Comparison> worst;
  for (const std::vector<Comparison>& texts : *all) worst.push_back(worst_of(texts));
  return worst;
}

Expected<MixedPlan> find_mixed(Context& context, const Model& stock, const Judge& judge, StagedType lane,
                               const std::vector<KeptStock>& not_served, const std::vector<TensorGroup>& order,
                               const Thresholds& thresholds) {
  std::optional<MixedPlan> best;
  size_t fails = 0, passes = order.size();  // with that many groups kept stock; all of them: nothing is left to judge
  const auto try_keeping = [&](size_t kept) -> Status {
    const std::vector<std::string> hurtful = tensors_of(order, kept);
    std::set<std::string> on_stock(hurtful.begin(), hurtful.end());
    for (const KeptStock& tensor : not_served) on_stock.insert(tensor.tensor);
    const Expected<Model> model = with_lane(context, stock, lane, on_stock);
    if (!model) return fail_with(model);
    Expected<std::vector<Comparison>> texts = judge.compare_one(*model);
    if (!texts) return fail_with(texts);
    if (!why_fails(worst_of(*texts), thresholds).empty()) {
      fails = kept + 1;
      return {};
    }
    passes = kept;
    best = MixedPlan{{}, std::move(*texts)};  // of `passes`
    return {};
  };
  while (fails < passes) {
    if (const Status tried = try_keeping(fails + (passes - fails) / 2); !tried) return fail_with(tried);
  }
  if (!best) return MixedPlan{tensors_of(order, order.size()), {}};
  best->stock = tensors_of(order, passes);
  return std::move(*best);
}

}  // namespace octalane
