#include "files/json_reader.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

namespace octalane {
namespace {

using nlohmann::json;

/// A position in the text that tells how far reading has come.
class Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, uint64_t* read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*read_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  uint64_t* read_;
};

/// The library's events as ours.
class Adapter {
 public:
  explicit Adapter(JsonEvents& events) : events_(events) {}

  bool null() { return events_.other("null"); }
  bool boolean(bool) { return events_.other("a boolean"); }
  bool number_integer(json::number_integer_t) { return events_.other("a negative number"); }
  bool number_unsigned(json::number_unsigned_t value) { return events_.natural(value); }
  bool number_float(json::number_float_t, const std::string&) { return events_.other("a fraction"); }
  bool string(std::string& value) { return events_.text(value); }
  bool binary(json::binary_t&) { return events_.other("binary"); }
  bool start_object(size_t) { return events_.open_object(); }
  bool key(std::string& name) { return events_.key(name); }
  bool end_object() { return events_.close(); }
  bool start_array(size_t) { return events_.open_array(); }
  bool end_array() { return events_.close(); }
  bool parse_error(size_t, const std::string&, const json::exception&) {
    events_.invalid();
    return false;
  }

 private:
  JsonEvents& events_;
};

}  // namespace

bool read_json(std::string_view text, JsonEvents& events, uint64_t& read) {
  read = 0;
  // The library takes a NUL for the end of the text; in JSON it is never valid.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    read = nul;
    events.invalid();
    return false;
  }
  uint64_t ignored = 0;
  Adapter adapter(events);
  return json::sax_parse(Cursor(text.data(), &read), Cursor(text.data() + text.size(), &ignored), &adapter);
}

std::string json_string(std::string_view text) {
  std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::ignore);
  return json::parse(quoted, nullptr, false) == text ? quoted : std::string();
}

}  // namespace octalane
