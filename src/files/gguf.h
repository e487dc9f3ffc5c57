// GGUF v2 and v3, little endian: a memory-mapped reader that copies no weights, and a writer.
// Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.h"

namespace octalane {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A typed array of the metadata, still in the file's bytes: elements are read on demand, nothing is copied.
struct GgufArray {
  GgufType type = GgufType::u8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;
};

/// Integers of every width arrive as uint64_t or int64_t, floats as double; strings point into the file.
using GgufScalar = std::variant<uint64_t, int64_t, double, bool, std::string_view>;
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufScalar scalar;  ///< every type but array
  GgufArray array;    ///< GgufType::array
};

/// A tensor as the file describes it. shape[0] is the contiguous dimension (K of a weight matrix), shape[1] its rows.
struct GgufTensor {
  std::string_view name;
  uint32_t ggml_type = 0;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  const std::byte* data = nullptr;

  int64_t cols() const { return shape.empty() ? 1 : shape[0]; }
  /// All dimensions but the first, multiplied.
  int64_t rows() const;
};

class GgufFile {
 public:
  /// Maps a file and checks all of its header: every count, length, offset and tensor extent lies inside the file,
  /// names and keys are unique, tensors are aligned, do not overlap and have a type whose size is known. Shapes may
  /// hold zeros; any product of dimensions fits in int64. Errors name the path, the tensor or key, and the byte offset.
  static Expected<GgufFile> open(const std::string& path);
  /// The same over bytes that the caller keeps alive.
  static Expected<GgufFile> parse(std::span<const std::byte> bytes, std::string name = "memory");
  /// The same over bytes that the file keeps.
  static Expected<GgufFile> parse_owned(std::vector<std::byte> bytes, std::string name);

  uint32_t version() const;
  uint64_t file_bytes() const;
  const std::string& path() const;
  std::span<const GgufTensor> tensors() const;
  const GgufTensor* find_tensor(std::string_view name) const;
  /// Keys in file order.
  std::span<const std::pair<std::string_view, GgufValue>> metadata() const;
  const GgufValue* find(std::string_view key) const;

  /// The value of a key; the error names the key, the wanted and the found type. Integers convert between widths when
  /// they fit, and to double; T is one of int64_t, double, bool, std::string_view.
  template <class T>
  Expected<T> get(std::string_view key) const;
  /// As get, but `fallback` when the key is absent. A key of a wrong type is still an error.
  template <class T>
  Expected<T> get_or(std::string_view key, T fallback) const;
  /// All elements of an array; T as above, plus float and int32_t.
  template <class T>
  Expected<std::vector<T>> get_array(std::string_view key) const;

  /// Tells the system that the pages of these bytes are not needed soon (they can be read again): packed weights then
  /// need not sit in memory twice.
  void release(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  struct State;
  explicit GgufFile(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// Builds a GGUF v3 file: metadata first, then tensors whose bytes are produced one after another, so that a file
/// larger than memory can be written. Written to a temporary name beside `path` and renamed when complete.
class GgufWriter {
 public:
  static Expected<GgufWriter> create(const std::string& path);
  /// Builds a file in memory, for take(); `name` is used in errors.
  static GgufWriter in_memory(const std::string& name);
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;
  ~GgufWriter();  ///< removes the temporary file when finish() was not reached

  /// A key that was set before gets the new value in its old place. A value that does not fit its type fails the
  /// next add_tensor, write_tensor or finish. "general.alignment" is obeyed.
  void set(std::string_view key, GgufType type, GgufScalar value);
  void set_array(std::string_view key, std::span<const std::string> values);
  void set_array(std::string_view key, std::span<const int32_t> values);
  void set_array(std::string_view key, std::span<const float> values);
  /// A value as a parsed file holds it, of any type.
  void copy(std::string_view key, const GgufValue& value);
  /// Declares a tensor; all tensors are declared before the first write_tensor.
  Status add_tensor(std::string_view name, uint32_t ggml_type, std::span<const int64_t> shape);
  /// The bytes of the tensors, in the order of add_tensor; a tensor may come in several pieces.
  Status write_tensor(std::span<const std::byte> piece);
  /// Fails when bytes are missing; else flushes, renames, done.
  Status finish();
  /// The file that in_memory() began, complete and parsed.
  Expected<GgufFile> take();

 private:
  struct State;
  explicit GgufWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace octalane
