#include "gate/json_file.h"

#include <filesystem>
#include <fstream>

namespace octalane {

Expected<Json> read_json_object(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return fail("{}: wanted a JSON file, found none", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail("{}: cannot read", path);
  std::string text(static_cast<size_t>(kMostJsonBytes) + 1, '\0');
  file.read(text.data(), kMostJsonBytes + 1);
  if (file.gcount() > kMostJsonBytes) return fail("{}: wanted at most {} bytes, got more", path, kMostJsonBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  Json document = Json::parse(text, nullptr, false);
  if (!document.is_object()) return fail("{}: wanted a JSON object, got something else", path);
  return document;
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() ? &*found : nullptr;
}

const std::string* text_at(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get_ptr<const std::string*>() : nullptr;
}

const Json* list_at(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_array() ? value : nullptr;
}

}  // namespace octalane
