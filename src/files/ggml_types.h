// The sizes of every type a GGUF file can name, those that octalane cannot compute with included: a file's extents are
// checked, and its tensors listed, before anybody asks for their values.
// Source: ggml's type traits, https://github.com/ggml-org/ggml/blob/master/src/ggml.c
#pragma once

#include <cstdint>
#include <string>

namespace octalane {

struct GgmlType {
  uint32_t id;
  const char* name;  ///< ggml's name in lower case, "q4_k"
  int block;         ///< values per block
  int block_bytes;
};

/// Null when the number is not known.
const GgmlType* find_ggml_type(uint32_t id);
/// "iq2_xxs", or "type 77" for a number nobody knows.
std::string ggml_type_name(uint32_t id);

}  // namespace octalane
