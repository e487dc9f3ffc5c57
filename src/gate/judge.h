// Whether a lossy lane is good enough for a model: figures on texts, thresholds, and which tensors to leave out.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gate/score.h"
#include "model/model.h"

namespace octalane {

struct Thresholds {
  double max_ppl_ratio = 1.01;
  double max_kld = 0.02;  ///< of the mean, nats
  double min_top1 = 0.97;
};

/// The worst of each figure by itself; NaN when one of them is. Precondition: at least one.
Comparison worst_of(std::span<const Comparison> texts);
/// Which thresholds the figures miss, for a person to read; empty = none. What is not finite misses.
std::string why_fails(const Comparison& worst, const Thresholds& thresholds);

/// A tensor that stays on the stock lane, and why.
struct KeptStock {
  std::string tensor;
  std::string why;
};

/// The tensors of a model that no kernel of a lane can serve, and those that would fall back to another one
/// (Linear::fallback).
std::vector<KeptStock> not_served(Context& context, const Model& model, StagedType lane);

/// The model with a lane forced for every tensor but `stock`, which take the stock lane.
Expected<Model> with_lane(Context& context, const Model& model, StagedType lane, const std::set<std::string>& stock);

struct Text {
  std::string name;
  std::string hash;             ///< Fnv1a of its bytes
  std::vector<int32_t> tokens;  ///< whole windows, begin tokens in place
};

/// Tensors that are switched together.
struct TensorGroup {
  std::string name;
  std::vector<std::string> tensors;
};
enum class GroupBy { tensor, block };
/// The tensors that a lane serves, one by one, or those of each block of the model ("blk.3", by their names; tensors
/// outside the blocks by themselves).
std::vector<TensorGroup> tensor_groups(const Model& model, const std::vector<KeptStock>& stock, GroupBy by);

/// Scores candidates against one model on texts.
class Judge {
 public:
  /// `go_on(done, all)` is asked between windows; false ends with an error. Context and model must outlive it.
  Judge(Context& context, const Model& stock, std::vector<Text> texts, int64_t window,
        std::function<bool(int64_t done, int64_t all)> go_on);

  const std::vector<Text>& texts() const { return texts_; }
  int64_t window() const { return window_; }

  /// [candidate][text]
  Expected<std::vector<std::vector<Comparison>>> compare(std::vector<Scored> candidates) const;
  Expected<std::vector<Comparison>> compare_one(const Model& candidate) const;
  /// The stock path against itself, windows split otherwise; by text.
  Expected<std::vector<Comparison>> noise_floor() const;
  /// What each group alone costs in this lane; the worst text, by group.
  Expected<std::vector<Comparison>> alone(StagedType lane, const std::vector<TensorGroup>& groups) const;

 private:
  Context& context_;
  const Model& stock_;
  std::vector<Text> texts_;
  int64_t window_;
  std::function<bool(int64_t done, int64_t all)> go_on_;
};

struct MixedPlan {
  std::vector<std::string> stock;  ///< tensors kept besides those not served, the most hurtful first
  std::vector<Comparison> texts;   ///< empty: not one group may take the lane
};

/// The fewest groups, of those that hurt most, to keep stock so that the rest passes; found by bisection, which takes
/// it that more stock never makes things worse, and judged as it is returned. `order`: groups, the most hurtful first.
Expected<MixedPlan> find_mixed(Context& context, const Model& stock, const Judge& judge, StagedType lane,
                               const std::vector<KeptStock>& not_served, const std::vector<TensorGroup>& order,
                               const Thresholds& thresholds);

}  // namespace octalane
