// Safetensors: memory-mapped readers of one file and of a model's shards, which copy no weights, and a writer.
// Layout: u64 length of the header, the header (JSON), the data; all little endian.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace octalane {

/// A tensor as the file describes it: dtype as spelled there ("F32", "BF16", "U32", "F8_E4M3", ...), the outermost
/// dimension first, so that shape.back() is the contiguous one. Data may lie at any address: read it with memcpy.
struct SafetensorsTensor {
  std::string_view name;
  std::string_view dtype;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  const std::byte* data = nullptr;
};

using SafetensorsMetadata = std::pair<std::string_view, std::string_view>;

/// Bytes of a tensor. The error says what is wrong: a dtype that the format does not have, a negative dimension, a
/// product or size outside int64 (dimensions of 0 count as 1 there, so that any part of the product is safe to form),
/// 4- or 6-bit values that do not fill their last byte.
Expected<uint64_t> safetensors_tensor_bytes(std::string_view dtype, std::span<const int64_t> shape);

class SafetensorsFile {
 public:
  /// Maps a file and checks all of its header: it is at most 100 MB of JSON and has what the format defines and nothing
  /// else; names are unique; every tensor has a known dtype and exactly the bytes of its shape; tensors fill the data
  /// section without overlap or hole. Errors name the path, the tensor or key, and the byte that reading had come to.
  static Expected<SafetensorsFile> open(const std::string& path);
  /// The same over bytes that the caller keeps alive.
  static Expected<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string name = "memory");

  uint64_t file_bytes() const;
  const std::string& path() const;
  /// In the order of the header, which need not be that of the data.
  std::span<const SafetensorsTensor> tensors() const;
  const SafetensorsTensor* find_tensor(std::string_view name) const;
  /// The pairs of "__metadata__" in file order.
  std::span<const SafetensorsMetadata> metadata() const;

  /// Tells the system that the pages of these bytes are not needed soon (they can be read again).
  void release(const SafetensorsTensor& tensor) const;

 private:
  friend class SafetensorsParser;
  struct State;
  explicit SafetensorsFile(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// The tensors of one file or of several shards as one list.
class SafetensorsSet {
 public:
  /// `path` is a file, or a folder with one of these, in this order: model.safetensors.index.json, which then says in
  /// which file each tensor is, neither more nor fewer; model.safetensors; one .safetensors file of any name, or all of
  /// NAME-00001-of-0000N.safetensors. Errors as SafetensorsFile::open, or they name the folder or index.
  static Expected<SafetensorsSet> open(const std::string& path);

  uint64_t file_bytes() const;  ///< of all shards
  const std::string& path() const;
  std::span<const SafetensorsFile> shards() const;
  /// Shard by shard, shards in order of name.
  std::span<const SafetensorsTensor> tensors() const;
  const SafetensorsTensor* find_tensor(std::string_view name) const;
  /// Of the first shard.
  std::span<const SafetensorsMetadata> metadata() const;
  void release(const SafetensorsTensor& tensor) const;

 private:
  struct State;
  explicit SafetensorsSet(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// Builds a safetensors file, or shards with an index: tensors are declared first, then their bytes are produced one
/// after another, so that a model larger than memory can be written. Everything is written under temporary names and
/// renamed when complete.
class SafetensorsWriter {
 public:
  static constexpr uint64_t kDefaultShardBytes = 5'000'000'000;  ///< what transformers and mlx-lm take, about

  /// `path` is an existing folder, for model.safetensors, or a file name that ends in ".safetensors". When the data is
  /// larger than `max_shard_bytes`, files of at most so many data bytes (or one tensor) are written instead:
  /// model-00001-of-00002.safetensors, ... and model.safetensors.index.json.
  static Expected<SafetensorsWriter> create(const std::string& path, uint64_t max_shard_bytes = kDefaultShardBytes);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();  ///< removes the temporary files when finish() was not reached

  /// A pair for "__metadata__" of every file; a key that was set before gets the new value. Text that is not UTF-8
  /// fails the next write_tensor or finish.
  void set_metadata(std::string_view key, std::string_view value);
  /// Declares a tensor; all tensors are declared before the first write_tensor.
  Status add_tensor(std::string_view name, std::string_view dtype, std::span<const int64_t> shape);
  /// The bytes of the tensors, in the order of add_tensor; a tensor may come in several pieces.
  Status write_tensor(std::span<const std::byte> piece);
  /// Fails when bytes are missing; else flushes, renames, done.
  Status finish();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace octalane
