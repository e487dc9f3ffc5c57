// JSON as a stream of events, without a tree: nesting costs no stack, and nothing is kept but what the reader keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octalane {

/// What a reader of JSON is told, in the order of the text. Each answer says whether to go on.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool open_object() = 0;
  virtual bool open_array() = 0;
  virtual bool close() = 0;
  virtual bool key(std::string& name) = 0;  ///< may be moved from, as a text
  virtual bool text(std::string& value) = 0;
  virtual bool natural(uint64_t value) = 0;       ///< an integer from 0 to 2^64 - 1
  virtual bool other(std::string_view what) = 0;  ///< "null", "a boolean", "a negative number", "a fraction"
  virtual void invalid() = 0;                     ///< the text is not JSON (RFC 8259, UTF-8), or goes on behind it
};

/// Reads one JSON value. `read` counts the bytes read so far: during an event, those up to the end of its token (and
/// of a number one more). False when an event said stop or the text is invalid.
bool read_json(std::string_view text, JsonEvents& events, uint64_t& read);

/// The text as a JSON string with its quotes; empty when it is not UTF-8.
std::string json_string(std::string_view text);

}  // namespace octalane
