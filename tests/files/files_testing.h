// What the tests of this room share: golden files, a folder that goes away, and bytes put together by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"

namespace octalane::testing {

inline std::string golden(const std::string& name) { return OCTALANE_TEST_DATA "/files/golden/" + name; }

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A folder that is removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "octalane-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::filesystem::path path_;
};

/// A copy of exactly these bytes on the heap, where AddressSanitizer sees a read of one byte too many.
class ExactBytes {
 public:
  explicit ExactBytes(std::string_view bytes) : data_(new std::byte[bytes.size()]), size_(bytes.size()) {
    if (size_) std::memcpy(data_.get(), bytes.data(), size_);
  }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_;
};

/// Puts GGUF bytes together as the layout says, right or wrong.
class GgufBytes {
 public:
  GgufBytes() = default;
  GgufBytes(uint64_t tensors, uint64_t keys, uint32_t version = 3) { raw("GGUF").u32(version).u64(tensors).u64(keys); }

  GgufBytes& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& u8(uint8_t value) { return number(value); }
  GgufBytes& u32(uint32_t value) { return number(value); }
  GgufBytes& u64(uint64_t value) { return number(value); }
  GgufBytes& text(std::string_view value) { return u64(value.size()).raw(value); }
  GgufBytes& type(GgufType value) { return u32(static_cast<uint32_t>(value)); }
  GgufBytes& key(std::string_view name, GgufType kind) { return text(name).type(kind); }
  GgufBytes& tensor(std::string_view name, std::vector<int64_t> shape, uint32_t ggml_type, uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(shape.size()));
    for (const int64_t dim : shape) u64(static_cast<uint64_t>(dim));
    return u32(ggml_type).u64(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) u8(0);
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  GgufBytes& number(T value) {
    return raw({reinterpret_cast<const char*>(&value), sizeof value});
  }
  std::string bytes_;
};

}  // namespace octalane::testing
