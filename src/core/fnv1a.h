// 64-bit FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octalane {

class Fnv1a {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash_ = (hash_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3u;
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  uint64_t value() const { return hash_; }
  /// 16 hexadecimal digits.
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace octalane
