// Tells one model from another without reading all of it.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace octalane {

/// 16 hexadecimal digits: a hash of the metadata, of every tensor's name, type and shape, and of its codebooks and up
/// to kFingerprintRows rows of each, evenly spread. A file of the same shapes with other weights has another one,
/// whichever format they are in; a single value changed in a row that is not looked at goes unnoticed. Reads a few MiB
/// of any model.
std::string model_fingerprint(const Checkpoint& checkpoint);

inline constexpr int64_t kFingerprintRows = 8;

}  // namespace octalane
