#include "model/utf8_stream.h"

namespace octalane {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Part { character, invalid, unfinished };
struct Scan {
  Part part;
  size_t bytes;
};

/// The second byte of a sequence has a narrower range after some leads: no overlong forms, no surrogates, <= U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return low <= second && second <= high;
}

/// The first character of non-empty `text`, or the longest start of one.
Scan scan_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {Part::character, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Part::invalid, 1};
  const size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return {Part::unfinished, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (i == 1 ? !second_byte_fits(lead, byte) : (byte & 0xC0) != 0x80) return {Part::invalid, i};
  }
  return {Part::character, wanted};
}

}  // namespace

std::string Utf8Stream::feed(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Scan scan = scan_character(rest);
    if (scan.part == Part::unfinished) break;
    out += scan.part == Part::character ? rest.substr(0, scan.bytes) : kReplacement;
    rest.remove_prefix(scan.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(kReplacement) : std::string();
}

}  // namespace octalane
