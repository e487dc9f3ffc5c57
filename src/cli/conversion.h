// What `quantize` and `synth` decide about formats.
#pragma once

#include <cstdint>
#include <string>

#include "formats/format.h"

namespace octalane::cli {

struct PickedFormat {
  const Format* format;
  std::string why;  ///< empty when it is the one asked for
};

/// The format for rows of `cols` weights: the wanted one when its block divides them, else the nearest of smaller
/// blocks that has at least its bits, in the end f16.
PickedFormat format_for_row(const Format& wanted, int64_t cols);

/// general.file_type of a file whose weights are mostly of this format; -1 = none is defined.
int64_t gguf_file_type(const Format& format);

/// general.quantization_version: the block layouts of ggml since 2023.
inline constexpr uint64_t kQuantizationVersion = 2;

}  // namespace octalane::cli
