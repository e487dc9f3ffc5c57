// Which lane each product takes: rules by tensor name, and the lossy lanes that were found good enough for a model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/staged_set.h"

namespace octalane {

/// The lanes that one tensor may take.
struct LaneSelection {
  std::optional<StagedType> forced;  ///< empty = auto: the fastest of the stock lane and `lossy`
  StagedSet lossy;

  friend bool operator==(const LaneSelection&, const LaneSelection&) = default;
};

struct LaneRule {
  std::string tensors;             ///< a pattern of tensor names: * and ? stand for any characters or one
  std::optional<StagedType> lane;  ///< empty = auto
};

/// A lossy lane that auto may take, but for the tensors named.
struct LaneGrant {
  StagedType lane;
  std::vector<std::string> except;
};

struct LaneRules {
  std::vector<LaneRule> rules;  ///< of those that match a tensor, the last one decides
  std::vector<LaneGrant> grants;

  /// The rule that decides; null when none matches.
  const LaneRule* find(std::string_view tensor) const;
  /// The lossy lanes that auto may take for this tensor.
  StagedSet granted(std::string_view tensor) const;
  /// Every lane that some tensor may get by these rules.
  StagedSet named() const;
};

/// True when a name matches a pattern of * (any characters, none too) and ? (one).
bool matches(std::string_view pattern, std::string_view name);

}  // namespace octalane
