#include "gate/lane_plan.h"

#include <algorithm>

#include "files/quote.h"
#include "gate/json_file.h"

namespace octalane {
namespace {

std::string lane_names() {
  std::string names = "auto";
  for (const StagedTypeInfo& row : kStagedTypes) names += fmt::format(", {}", row.name);
  return names;
}

/// Why an object has other keys than these; empty = it has none.
std::string unknown_key(const Json& object, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) return quote(key);
  }
  return "";
}

Expected<LaneRule> rule_of(const std::string& where, const Json& row) {
  const std::string *tensors = text_at(row, "tensors"), *lane = text_at(row, "lane");
  if (tensors == nullptr || lane == nullptr || tensors->empty()) {
    return fail("{}: wanted tensors (a pattern) and lane (a name), got something else", where);
  }
  if (const std::string key = unknown_key(row, {"tensors", "lane"}); !key.empty()) {
    return fail("{}: wanted tensors and lane, got {} too", where, key);
  }
  const std::optional<StagedType> staged = staged_type_from_name(*lane);
  if (!staged && *lane != "auto") {
    return fail("{}: lane: wanted one of {}, got {}", where, lane_names(), quote(*lane));
  }
  return LaneRule{*tensors, staged};
}

}  // namespace

Expected<std::vector<LaneRule>> read_lane_plan(const std::string& path) {
  const Expected<Json> document = read_json_object(path);
  if (!document) return fail_with(document);
  const Json* rows = list_at(*document, "lanes");
  if (rows == nullptr) return fail("{}: lanes: wanted a list, got something else", path);
  if (const std::string key = unknown_key(*document, {"lanes"}); !key.empty()) {
    return fail("{}: wanted lanes, got {} too", path, key);
  }
  std::vector<LaneRule> rules;
  for (size_t i = 0; i < rows->size(); ++i) {
    Expected<LaneRule> rule = rule_of(fmt::format("{}: lanes[{}]", path, i), (*rows)[i]);
    if (!rule) return fail_with(rule);
    rules.push_back(std::move(*rule));
  }
  return rules;
}

Status check_lane_plan(const std::string& path, std::span<const LaneRule> rules, std::span<const std::string> tensors) {
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto matched = [&](const std::string& name) { return matches(rules[i].tensors, name); };
    if (std::ranges::none_of(tensors, matched)) {
      return fail("{}: lanes[{}]: wanted a pattern that matches a matrix of the model, got {}", path, i,
                  quote(rules[i].tensors));
    }
  }
  return {};
}

}  // namespace octalane
