// Plan files: which tensors take which lane, written by a person.
//
//   {"lanes": [{"tensors": "blk.*.ffn_down.weight", "lane": "s8.row"}, {"tensors": "blk.0.*", "lane": "auto"}]}
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "linear/lane_rules.h"

namespace octalane {

/// Rules in file order: of those that match a tensor, the last one decides. Whatever else the file holds is an error
/// that names it: other keys, lanes that do not exist, patterns that are empty.
Expected<std::vector<LaneRule>> read_lane_plan(const std::string& path);

/// Fails when a rule of the file `path` matches none of these names, and says which.
Status check_lane_plan(const std::string& path, std::span<const LaneRule> rules, std::span<const std::string> tensors);

}  // namespace octalane
