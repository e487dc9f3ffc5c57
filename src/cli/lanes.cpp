#include "cli/lanes.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/tensor_plan.h"
#include "gate/fingerprint.h"
#include "gate/lane_plan.h"
#include "gate/receipt.h"

namespace octalane::cli {
namespace {

std::vector<std::string> matrix_names(const Checkpoint& file) {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : file.tensors()) {
    if (is_matrix(tensor)) names.push_back(tensor.name);
  }
  return names;
}

/// The receipt that --receipt names; "" = none.
std::string receipt_wanted(const CommonOptions& options, const Checkpoint& file) {
  if (options.receipt == "none") return "";
  if (options.receipt != "auto") return options.receipt;
  std::string path = receipt_path(file.path());
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : "";
}

Expected<std::vector<LaneGrant>> obeyed_grants(const std::string& path, const Checkpoint& file) {
  Expected<ReceiptRead> receipt = read_receipt(path);
  if (!receipt) return fail("{} (octalane gate renews it, --receipt none ignores it)", receipt.error().message);
  const std::string fingerprint = model_fingerprint(file);
  const bool same_model = receipt->fingerprint == fingerprint;
  if (!same_model || receipt->version != OCTALANE_VERSION) {
    return fail(
        "{}: a stale receipt, wanted one for {} {}, got {} (octalane gate renews it, --receipt none ignores it)", path,
        same_model ? "octalane" : "the model", same_model ? OCTALANE_VERSION : fingerprint,
        same_model ? receipt->version : receipt->fingerprint);
  }
  return std::move(receipt->grants);
}

}  // namespace

Expected<ObeyedLanes> find_lanes(const CommonOptions& options, const Checkpoint& file) {
  LaneRules rules;
  ObeyedLanes out;
  if (!options.lanes.empty()) {
    Expected<std::vector<LaneRule>> read = read_lane_plan(options.lanes);
    if (!read) return fail_with(read);
    if (const Status checked = check_lane_plan(options.lanes, *read, matrix_names(file)); !checked) {
      return fail_with(checked);
    }
    rules.rules = std::move(*read);
  }
  const std::optional<StagedType> lane = staged_type_from_name(options.lane);
  if (lane && (info(*lane).stock || options.lanes.empty())) return out;  // nothing is on auto
  out.receipt = receipt_wanted(options, file);
  if (!out.receipt.empty()) {
    Expected<std::vector<LaneGrant>> grants = obeyed_grants(out.receipt, file);
    if (!grants) return fail_with(grants);
    rules.grants = std::move(*grants);
  }
  if (!rules.rules.empty() || !rules.grants.empty()) out.rules = std::make_shared<const LaneRules>(std::move(rules));
  return out;
}

void name_receipt(const CommonOptions& options, const ObeyedLanes& lanes) {
  if (lanes.receipt.empty() || options.json) return;
  StagedSet granted;
  std::string names;
  for (const LaneGrant& grant : lanes.rules != nullptr ? lanes.rules->grants : std::vector<LaneGrant>{}) {
    if (granted.contains(grant.lane)) continue;
    granted.insert(grant.lane);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name(grant.lane));
  }
  fmt::print(stderr, "octalane: {} allows {}\n", lanes.receipt, names.empty() ? "no lossy lane" : names);
}

}  // namespace octalane::cli
