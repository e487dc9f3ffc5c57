#include "linear/lane_rules.h"

#include <algorithm>

namespace octalane {

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;  // `star` took name[0, taken) so far
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

const LaneRule* LaneRules::find(std::string_view tensor) const {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (matches(rule->tensors, tensor)) return &*rule;
  }
  return nullptr;
}

StagedSet LaneRules::granted(std::string_view tensor) const {
  StagedSet lanes;
  for (const LaneGrant& grant : grants) {
    if (std::ranges::find(grant.except, tensor) == grant.except.end()) lanes.insert(grant.lane);
  }
  return lanes;
}

StagedSet LaneRules::named() const {
  StagedSet lanes;
  for (const LaneGrant& grant : grants) lanes.insert(grant.lane);
  for (const LaneRule& rule : rules) {
    if (rule.lane) lanes.insert(*rule.lane);
  }
  return lanes;
}

}  // namespace octalane
