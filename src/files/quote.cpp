#include "files/quote.h"

#include <fmt/core.h>

namespace octalane {

std::string quote(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string text = "\"";
  for (const char c : name.substr(0, kLongest)) {
    const bool plain = c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (name.size() > kLongest ? "...\"" : "\"");
}

}  // namespace octalane
