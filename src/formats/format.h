// The table of weight formats: one row each. A format knows its own bytes and nothing of kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/planes.h"

namespace octalane {

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

  double bits_per_weight() const { return 8.0 * block_bytes / block; }
  int64_t row_bytes(int64_t cols) const { return cols / block * block_bytes; }
};

/// Every format of this build, in GGUF type order.
std::span<const Format* const> formats();
const Format* find_format(std::string_view name);
const Format* find_ggml_format(uint32_t ggml_type);

}  // namespace octalane
