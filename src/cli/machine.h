// What a measurement has to say about the machine it ran on.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"

namespace octalane::cli {

/// CPU model, the flags that matter to kernels, cores, last-level cache, compiler, build type, version, commit and
/// whether it had uncommitted changes, load average.
Json machine_json(const Context& context);

/// What the kernels of this build leave out; null when they are whole.
Json ablation_json();

/// The arguments of this process, joined by spaces.
std::string command_line();

/// Most memory this process has held resident, in bytes; -1 where the system does not tell.
int64_t peak_memory_bytes();

/// Bytes of the last-level cache; 0 where the system does not tell.
int64_t last_level_cache_bytes();

/// A signed count as JSON: null for "not known".
inline Json known_or_null(int64_t value) { return value < 0 ? Json() : Json(value); }

/// Seconds on a clock that only goes forward.
double now_seconds();

}  // namespace octalane::cli
