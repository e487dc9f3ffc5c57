// JSON files of a model folder. Values are looked at without exceptions: what is missing or of another type is nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace octalane {

using Json = nlohmann::json;

/// Errors name the path, and the byte where the text ends to be JSON.
Expected<Json> read_json(const std::string& path);
/// Written whole or not at all.
Status write_json(const std::string& path, const Json& value);

/// The value of a key; null when `object` is no object, the key is absent, or its value is null.
const Json* member(const Json& object, std::string_view key);

std::optional<int64_t> integer_of(const Json* value);
std::optional<double> number_of(const Json* value);
std::optional<bool> boolean_of(const Json* value);
std::optional<std::string_view> text_of(const Json* value);

}  // namespace octalane
