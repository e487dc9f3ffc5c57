// The sizes of every type a GGUF file can name, those that octalane cannot compute with included: a file's extents are
// checked, and its tensors listed, before anybody asks for their values.
// Source: ggml's type traits, https://github.com/ggml-org/ggml/blob/master/src/ggml.c
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/status.h"

namespace octalane {

struct GgmlType {
  uint32_t id;
  const char* name;  ///< ggml's name in lower case, "q4_k"
  int block;         ///< values per block
  int block_bytes;
};

/// Null when the number is not known.
const GgmlType* find_ggml_type(uint32_t id);
/// "iq2_xxs"; "type 31 (q4_0_4_4, withdrawn from ggml)"; "type 77" for a number nobody knows.
std::string ggml_type_name(uint32_t id);
/// Every known type, in order of id.
std::span<const GgmlType> ggml_types();

inline constexpr size_t kMaxTensorDimensions = 4;  ///< ggml's limit, held by reader and writer

/// Bytes of a tensor of this shape (shape[0] contiguous; no dimensions = one value). The error says which rule the
/// shape breaks: at most 4 dimensions, none negative, whole blocks along shape[0], product and bytes inside int64.
/// The product counts dimensions of 0 as 1, so that any part of it is safe to form.
Expected<uint64_t> ggml_tensor_bytes(const GgmlType& type, std::span<const int64_t> shape);

}  // namespace octalane
