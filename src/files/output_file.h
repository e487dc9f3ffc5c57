#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"

namespace octalane {

/// A file that appears under its name only when it is complete: it is written under a temporary name in the same
/// folder and renamed by commit(). Without commit() nothing is left behind, and a file of that name stays as it was.
/// A symbolic link is followed; anything but a regular file is not replaced. Errors name the path and the reason.
class OutputFile {
 public:
  static Expected<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace octalane
