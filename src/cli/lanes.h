// --lanes and --receipt: which lane each tensor of a model may take.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/flags.h"
#include "core/status.h"
#include "linear/lane_rules.h"

namespace octalane::cli {

struct ObeyedLanes {
  std::shared_ptr<const LaneRules> rules;  ///< null: --lane alone decides
  std::string receipt;                     ///< the receipt that is obeyed; "" = none
};

/// The rules of --lanes, each of which must match a matrix of the file, and what --receipt grants to tensors that are
/// on auto. A receipt of another model or another version of octalane is an error that says how to renew or ignore it.
/// The stock lane by name turns everything off; a rules file is then checked, and a receipt is not looked at.
Expected<ObeyedLanes> find_lanes(const CommonOptions& options, const Checkpoint& file);

/// Says on stderr which receipt is obeyed, unless the output is JSON.
void name_receipt(const CommonOptions& options, const ObeyedLanes& lanes);

}  // namespace octalane::cli
