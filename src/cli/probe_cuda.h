// probe --device cuda.
#pragma once

#include "cli/command.h"

namespace octalane::cli {

/// Measures the first CUDA device and prints what it reaches; docs/probe.md.
Expected<int> probe_cuda(const CommonOptions& options, int repeats, int sample_ms);

}  // namespace octalane::cli
