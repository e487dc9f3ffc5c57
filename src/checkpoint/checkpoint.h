// A model on disk, whatever holds it: named weights in known formats, and metadata under the keys of GGUF.
#pragma once

#include <array>
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

/// One weight or vector. What lies in several tensors of a file (weight, scales, biases) is one here.
struct CheckpointTensor {
  std::string name;  ///< the file's own; the module path of what lies in several tensors
  std::string
      role;  ///< what GGUF calls it ("blk.0.attn_q.weight"); `name` in a GGUF file, "" when it has no part in a model
  std::string type;  ///< "q4_k", "mlx-affine-4-g64"; also of what octalane does not compute with ("iq2_xxs")
  const Format* format = nullptr;  ///< null: not computed with
  std::vector<int64_t> shape;      ///< shape[0] = K of a weight matrix, contiguous; shape[1] its rows
  std::array<const std::byte*, kMaxParts> parts{};
  uint64_t bytes = 0;  ///< of all parts

  int64_t cols() const { return shape.empty() ? 1 : shape[0]; }
  /// All dimensions but the first, multiplied.
  int64_t rows() const;
  /// Precondition: format != nullptr.
  StoredMatrix matrix() const { return {format, rows(), cols(), parts}; }
};

class Checkpoint {
 public:
  /// A GGUF file, a .safetensors file or a model folder (config.json, safetensors, tokenizer.json), as mlx-lm and
  /// transformers write them. Errors name the path and what is wrong with it.
  static Expected<Checkpoint> open(const std::string& path);
  /// A GGUF file that is open already.
  Checkpoint(GgufFile file);  // NOLINT(google-explicit-constructor): it is one

  const std::string& path() const;
  std::string_view container() const;  ///< "gguf" or "safetensors"
  uint64_t file_bytes() const;
  /// Architecture, sizes, tokenizer: what a GGUF file of this model has. Its tensors are those of GGUF files only.
  const GgufFile& metadata() const;
  /// Why this is not a model that can be run, when a folder's config.json or tokenizer say so already. Its weights can
  /// be listed and multiplied all the same.
  const Status& model_status() const;

  /// In file order.
  std::span<const CheckpointTensor> tensors() const;
  /// By the file's own name.
  const CheckpointTensor* find(std::string_view name) const;
  /// By what GGUF calls it.
  const CheckpointTensor* find_role(std::string_view role) const;

  /// Tells the system that the pages of this tensor are not needed soon (they can be read again).
  void release(const CheckpointTensor& tensor) const;

 private:
  struct State;
  explicit Checkpoint(std::shared_ptr<const State> state);
  static Expected<Checkpoint> open_safetensors(const std::string& path);
  std::shared_ptr<const State> state_;
};

}  // namespace octalane
