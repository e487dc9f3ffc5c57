#include "checkpoint/json.h"

#include <limits>

#include "files/mapped_file.h"
#include "files/output_file.h"

namespace octalane {

Expected<Json> read_json(const std::string& path) {
  const Expected<MappedFile> file = MappedFile::open(path);
  if (!file) return fail_with(file);
  const auto bytes = file->bytes();
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  Json value = Json::parse(text, text + bytes.size(), nullptr, false);
  if (value.is_discarded()) return fail("{}: wanted JSON, got something else", path);
  if (!value.is_object()) return fail("{}: wanted a JSON object, got {}", path, value.type_name());
  return value;
}

Status write_json(const std::string& path, const Json& value) {
  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (const Status done = file->write(std::as_bytes(std::span(text))); !done) return done;
  return file->commit();
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> integer_of(const Json* value) {
  if (value == nullptr) return {};
  if (const auto* whole = value->get_ptr<const uint64_t*>()) {
    if (*whole > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
    return static_cast<int64_t>(*whole);
  }
  if (const auto* whole = value->get_ptr<const int64_t*>()) return *whole;
  return {};
}

std::optional<double> number_of(const Json* value) {
  if (const std::optional<int64_t> whole = integer_of(value)) return static_cast<double>(*whole);
  if (value == nullptr) return {};
  const auto* real = value->get_ptr<const double*>();
  return real != nullptr ? std::optional(*real) : std::nullopt;
}

std::optional<bool> boolean_of(const Json* value) {
  if (value == nullptr) return {};
  const auto* truth = value->get_ptr<const bool*>();
  return truth != nullptr ? std::optional(*truth) : std::nullopt;
}

std::optional<std::string_view> text_of(const Json* value) {
  if (value == nullptr) return {};
  const auto* text = value->get_ptr<const std::string*>();
  return text != nullptr ? std::optional<std::string_view>(*text) : std::nullopt;
}

}  // namespace octalane
