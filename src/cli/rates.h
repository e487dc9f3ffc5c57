// --rates: what plans are made from.
#pragma once

#include <memory>
#include <vector>

#include "cli/flags.h"
#include "core/status.h"
#include "formats/format.h"
#include "plan/plan.h"

namespace octalane::cli {

/// What to do about kernels that were not measured yet.
enum class Unmeasured { measure, leave };

/// The rates that --rates names: none ("nominal"), those of a file, or this machine's, saved in the user's cache. The
/// last are measured when the cache lacks some of what the instruction sets (all that are here, or --isa and what it
/// extends), lanes (that of --lane, and those of `also`) and formats need, and saved, with a word on stderr.
Expected<std::shared_ptr<const Rates>> find_rates(const CommonOptions& options, std::span<const IsaTable* const> isas,
                                                  const std::vector<const Format*>& formats, Unmeasured unmeasured,
                                                  StagedSet also = {});

/// Puts rates measured anew into the cache, and into a file unless `path` is empty.
Status save_rates(const Rates& measured, const std::string& path);

}  // namespace octalane::cli
