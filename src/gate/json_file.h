// Small JSON files of other people. Private to the room, for nlohmann's header takes seconds to compile.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/status.h"

namespace octalane {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMostJsonBytes = 4 << 20;

/// The object in a regular file of at most kMostJsonBytes. Errors name the path.
Expected<Json> read_json_object(const std::string& path);

/// A member; null when the value is no object or has none of this name.
const Json* member(const Json& object, const char* key);
/// A member that is a string, a list; null when it is anything else.
const std::string* text_at(const Json& object, const char* key);
const Json* list_at(const Json& object, const char* key);

}  // namespace octalane
