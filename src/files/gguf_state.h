// Shared by the parts of the GGUF code. GgufFile::State is filled by gguf_reader.cpp and read by gguf_file.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "files/gguf.h"
#include "files/mapped_file.h"
#include "files/name_index.h"

namespace octalane {

/// "u32", "string", ...; "type 99" for a number that is no metadata type.
std::string gguf_type_name(uint32_t type);
/// Bytes of one value of a fixed size; 0 for strings and arrays.
uint64_t gguf_type_bytes(GgufType type);

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// A value as another type: integers between widths when the value fits, numbers to floating point. False when the
/// types do not convert or the value is out of range.
template <class From, class T>
bool convert(const From& value, T& out) {
  if constexpr (std::is_same_v<From, T>) {
    out = value;
    return true;
  } else if constexpr (is_number<From> && std::is_same_v<T, float>) {
    const auto wide = static_cast<double>(value);
    if (std::isfinite(wide) && std::abs(wide) > double{std::numeric_limits<float>::max()}) return false;
    out = static_cast<float>(wide);
    return true;
  } else if constexpr (is_number<From> && std::is_same_v<T, double>) {
    out = static_cast<double>(value);
    return true;
  } else if constexpr (std::is_integral_v<From> && is_number<From> && std::is_integral_v<T> && is_number<T>) {
    out = static_cast<T>(value);
    return std::in_range<T>(value);
  } else {
    return false;
  }
}

template <class T>
bool convert(const GgufScalar& scalar, T& out) {
  return std::visit([&out](const auto& value) { return convert(value, out); }, scalar);
}

/// "u32 7", "string": a scalar in an error.
std::string describe(GgufType type, const GgufScalar& scalar);

struct GgufFile::State {
  MappedFile mapping;  ///< one of the two holds the bytes, or the caller does
  std::vector<std::byte> owned;
  std::string path;
  std::span<const std::byte> bytes;
  uint32_t version = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;
  NameIndex keys, names;
};

}  // namespace octalane
