#pragma once

#include "cli/command.h"

namespace octalane::cli {

/// The document of quantize --json, for people.
void print_quantized(const Json& result);

}  // namespace octalane::cli
