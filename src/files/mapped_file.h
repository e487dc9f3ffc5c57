#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/status.h"

namespace octalane {

/// The bytes of a regular file, mapped read-only and private: read on demand, shared with the page cache, never
/// copied. The file must not shrink while it is mapped.
class MappedFile {
 public:
  /// Errors name the path and the system's reason.
  static Expected<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Drops the whole pages inside `part` from memory; they are read again when touched. Nothing happens when `part`
  /// is not of this mapping.
  void release(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace octalane
