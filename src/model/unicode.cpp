#include "model/unicode.h"

namespace octalane {

namespace {

constexpr DecodedCodePoint kInvalid{0xFFFD, 1};

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

size_t utf8_sequence_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

DecodedCodePoint decode_utf8(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = utf8_sequence_bytes(text[offset]);
  if (bytes == 1 || lead >= 0xF8 || text.size() - offset < bytes) return kInvalid;
  char32_t value = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[offset + i])) return kInvalid;
    value = value << 6 | (static_cast<unsigned char>(text[offset + i]) & 0x3F);
  }
  if (value > 0x10FFFF) return kInvalid;
  return {value, bytes};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F))); };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace octalane
