// Builds a checkpoint: a GGUF file, or a model folder that mlx-lm and transformers read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "files/gguf.h"
#include "formats/format.h"

namespace octalane {

enum class Container : uint8_t { gguf, folder };

/// True when weights of this format can lie in this container.
bool can_hold(Container container, const Format& format);

/// Keys of these metadata that no file of a model folder has a place for ("general.author", ...).
std::vector<std::string> keys_folders_lack(const GgufFile& metadata);

class CheckpointWriter {
 public:
  /// `metadata` holds the keys of the model, as GGUF has them. A folder must be new or empty; it appears when complete,
  /// as a file does.
  static Expected<CheckpointWriter> create(const std::string& path, Container container, GgufFile metadata);
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) noexcept;
  ~CheckpointWriter();  ///< removes what is incomplete

  /// Declares a tensor by what GGUF calls it; all are declared before the first write. In folders, q and k of llama
  /// models turn as halves: whoever writes their rows puts them in that order. Errors: a format or a role that the
  /// container has no place for; a second kind of additive codebooks, which config.json cannot say.
  Status add_tensor(std::string_view role, const Format& format, std::span<const int64_t> shape);
  /// A tensor of any type that GGUF knows, into a GGUF file.
  Status add_tensor(std::string_view role, uint32_t ggml_type, std::span<const int64_t> shape);
  /// Whole rows, in the format's blocks, of the tensors in the order of their declaration.
  Status write(std::span<const std::byte> rows);
  /// The next tensor, whole, when it was declared with additive codebooks. Errors: other sizes than declared, codebooks
  /// that are not finite.
  Status write(const AdditiveMatrix& matrix);
  /// Fails when rows are missing, or when a folder cannot say what `metadata` says.
  Status finish();

  class Backend;

 private:
  explicit CheckpointWriter(std::unique_ptr<Backend> backend);
  std::unique_ptr<Backend> backend_;
};

}  // namespace octalane
