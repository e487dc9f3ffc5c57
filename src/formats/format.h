// The table of weight formats: one row each. A format knows its own bytes and nothing of kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/planes.h"
#include "core/status.h"
#include "formats/additive.h"

namespace octalane {

/// What one tensor of a file holds of every block, for formats that spread a matrix over several tensors.
struct FormatPart {
  std::string_view suffix;  ///< after the module path: "weight", "scales", "biases"
  int offset = 0;           ///< of its bytes in the block
  int bytes = 0;            ///< of each block
  bool per_matrix = false;  ///< one value for the whole matrix, repeated in every block
};
inline constexpr int kMaxParts = 3;

struct Format {
  std::string_view name;  ///< "q4_k"
  int ggml_type = -1;     ///< its number in GGUF files, -1 = none
  int block = 1;          ///< values per block
  int block_bytes = 0;
  WeightSpec spec;
  /// `cols` values (a multiple of block) at `bytes` -> planes. Reads cols / block * block_bytes bytes, by memcpy.
  void (*to_planes)(const std::byte* bytes, int64_t cols, const PlaneRow& out) = nullptr;
  /// fp32 -> row_bytes(cols) bytes, rounded as docs/formats.md says; null = this format is read only. Any input: NaN
  /// counts as 0, what is too large saturates (float elements keep both). The same bytes for the same values, always.
  void (*from_float)(const float* values, int64_t cols, std::byte* out) = nullptr;
  /// The tensors that a matrix lies in, blocks taken apart; empty: one tensor of blocks. The blocks of such formats
  /// exist in octalane only: parts of a group put side by side.
  std::span<const FormatPart> parts{};
  /// Additive codebooks, which do not lie row by row: a "row" is the codes and scales that belong to it, the last group
  /// of a row may be shorter, and there are neither blocks of bytes nor `parts`. Null: every other format.
  const AdditiveLayout* additive = nullptr;

  /// Without what a matrix or a whole row has once.
  double bits_per_weight() const {
    if (additive != nullptr) {
      const AdditiveShape& shape = additive->shape;
      return 8.0 * shape.books / shape.vector + (shape.group > 0 ? 16.0 / shape.group : 0.0);
    }
    int bytes = block_bytes;
    for (const FormatPart& part : parts) bytes -= part.per_matrix ? part.bytes : 0;
    return 8.0 * bytes / block;
  }
  int64_t row_bytes(int64_t cols) const {
    if (additive != nullptr) return additive->shape.code_bytes(cols) + 2 * additive->shape.groups(cols);
    return cols / block * block_bytes;
  }
};

/// A matrix as a file holds it: row-major in one tensor, or part by part in several. Refers to memory it does not own.
/// One pointer alone is to whole blocks, whatever the format.
struct StoredMatrix {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;  ///< cols is a multiple of format->block
  std::array<const std::byte*, kMaxParts> parts{};

  bool lies_in_blocks() const { return parts[1] == nullptr; }
  /// What a multiplication needs: cols a multiple of the block; of additive codebooks every part, and finite codebooks
  /// (weights past the end of a row have code 0, which must not spoil a sum). The error is one line.
  Status check() const;
  /// Blocks of one row, format->row_bytes(cols) bytes.
  void read_row(int64_t row, std::byte* out) const;
  /// Planes of one row.
  void to_planes(int64_t row, const PlaneRow& out) const;
  /// One row in fp32, as core/planes.h defines it.
  void decode_row(int64_t row, float* out) const;
  /// The codebooks of the matrix, fp32 [books][kCodewords][vector]; empty for formats without any.
  std::vector<float> codebooks() const;
};

/// What one tensor of a matrix with `cols` columns holds: `bytes` for every row, or for all of it.
struct StoredPart {
  std::string_view suffix;
  int64_t bytes = 0;
  bool per_matrix = false;
};
/// In the order of StoredMatrix::parts; none for formats that lie in one tensor.
std::vector<StoredPart> stored_parts(const Format& format, int64_t cols);

/// The inverse of read_row for formats with `parts`: takes the blocks of a row apart. parts[i] is where the bytes
/// of this row go, cols / block * parts[i].bytes of them (or one value, per_matrix).
void split_row(const Format& format, const std::byte* blocks, int64_t cols, std::span<std::byte* const> parts);

/// Every format of this build: those of GGUF in the order of its types, those of MLX, additive codebooks.
std::span<const Format* const> formats();
const Format* find_format(std::string_view name);
const Format* find_ggml_format(uint32_t ggml_type);

}  // namespace octalane
