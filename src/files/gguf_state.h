// What a GgufFile knows; filled by gguf_reader.cpp, read by gguf_file.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/gguf.h"
#include "files/mapped_file.h"

namespace octalane {

/// "u32", "string", ...; "type 99" for a number that is no metadata type.
std::string gguf_type_name(uint32_t type);
/// Bytes of one value of a fixed size; 0 for strings and arrays.
uint64_t gguf_type_bytes(GgufType type);

/// Indices in order of name. Lookups stay logarithmic whatever names a file picks, which a hash table cannot promise.
class NameIndex {
 public:
  /// Takes the names of items 0, 1, ...; returns two items of one name, or {0, 0}.
  std::pair<size_t, size_t> build(std::vector<std::string_view> names);
  /// The item of this name, or `none`.
  size_t find(std::string_view name) const;

  static constexpr size_t none = static_cast<size_t>(-1);

 private:
  std::vector<std::string_view> names_;
  std::vector<size_t> order_;
};

struct GgufFile::State {
  MappedFile mapping;  ///< empty when the caller owns the bytes
  std::string path;
  std::span<const std::byte> bytes;
  uint32_t version = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;
  NameIndex keys, names;
};

}  // namespace octalane
