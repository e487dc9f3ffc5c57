// What `quantize` and `synth` decide about formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/writer.h"
#include "formats/format.h"

namespace octalane::cli {

struct PickedFormat {
  const Format* format;
  std::string why;  ///< empty when it is the one asked for
};

/// The format for rows of `cols` weights: the wanted one when its block divides them, else the nearest of smaller
/// blocks that has at least its bits, in the end f16.
PickedFormat format_for_row(const Format& wanted, int64_t cols);

/// The same for a matrix of this name in GGUF. Embedding and output stay f16 beside additive codebooks.
PickedFormat format_for_matrix(const Format& wanted, std::string_view role, int64_t cols);

/// general.file_type of a file whose weights are mostly of this format; -1 = none is defined.
int64_t gguf_file_type(const Format& format);

/// What `--container` says; "auto": a GGUF file where that can hold the format, else a folder.
Container output_container(const std::string& path, const std::string& asked, const Format& format);

/// Of a file, or of all files of a folder.
uint64_t bytes_on_disk(const std::string& path);

/// general.quantization_version: the block layouts of ggml since 2023.
inline constexpr uint64_t kQuantizationVersion = 2;

}  // namespace octalane::cli
