// What writes each container. Private to the room.
#pragma once

#include "checkpoint/writer.h"

namespace octalane {

class CheckpointWriter::Backend {
 public:
  virtual ~Backend() = default;
  virtual Status add(std::string_view role, const Format& format, std::span<const int64_t> shape) = 0;
  virtual Status add(std::string_view role, uint32_t ggml_type, std::span<const int64_t> shape) = 0;
  virtual Status write(std::span<const std::byte> rows) = 0;
  virtual Status write(const AdditiveMatrix& matrix) = 0;
  virtual Status finish() = 0;
};

Expected<std::unique_ptr<CheckpointWriter::Backend>> make_folder_backend(const std::string& path, GgufFile metadata);

}  // namespace octalane
