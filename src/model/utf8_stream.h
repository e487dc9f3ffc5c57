// Tokens end anywhere, also inside a character: a stream that hands on whole characters only.
#pragma once

#include <string>
#include <string_view>

namespace octalane {

/// Output is always valid UTF-8. Bytes that can belong to no character become U+FFFD, one for each maximal invalid part
/// (Unicode 15, section 3.9), as soon as that is known.
class Utf8Stream {
 public:
  /// The characters completed by these bytes; the tail of an unfinished one (at most 3 bytes) waits for the next call.
  std::string feed(std::string_view bytes);
  /// What is left at the end of the text: "" or one U+FFFD.
  std::string flush();

 private:
  std::string pending_;
};

}  // namespace octalane
