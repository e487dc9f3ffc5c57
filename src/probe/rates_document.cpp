#include "probe/rates_document.h"

#include <filesystem>
#include <fstream>

namespace octalane {

Expected<nlohmann::ordered_json> read_rates_document(const std::string& path, const char* kind, int version,
                                                     std::streamsize most_bytes) {
  using Json = nlohmann::ordered_json;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return fail("{}: wanted a file of rates, found none", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail("{}: cannot read", path);
  std::string text(static_cast<size_t>(most_bytes) + 1, '\0');
  file.read(text.data(), most_bytes + 1);
  if (file.gcount() > most_bytes) return fail("{}: wanted at most {} bytes, got more", path, most_bytes);
  text.resize(static_cast<size_t>(file.gcount()));
  Json document = Json::parse(text, nullptr, false);
  if (!document.is_object() || document.value(kind, Json()) != version) {
    return fail("{}: wanted JSON with {} {}, got something else", path, kind, version);
  }
  return document;
}

}  // namespace octalane
