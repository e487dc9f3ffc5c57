// The JSON document that a file of rates is.
#pragma once

#include <ios>
#include <nlohmann/json.hpp>
#include <string>

#include "core/status.h"

namespace octalane {

/// Reads a document whose member `kind` is `version`. Errors: no regular file, more than `most_bytes`, no such
/// document.
Expected<nlohmann::ordered_json> read_rates_document(const std::string& path, const char* kind, int version,
                                                     std::streamsize most_bytes);

}  // namespace octalane
