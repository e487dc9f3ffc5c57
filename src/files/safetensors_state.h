// Shared by the parts of the safetensors code.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/mapped_file.h"
#include "files/name_index.h"
#include "files/safetensors.h"

namespace octalane {

inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";
inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";
inline constexpr std::string_view kSafetensorsIndexSuffix = ".safetensors.index.json";
inline constexpr uint64_t kMostSafetensorsHeaderBytes =
    100'000'000;  ///< the format's limit; an index is held to it too

/// The dtype's name as text that lives as long as the program; empty when the format does not have it.
std::string_view safetensors_dtype_name(std::string_view name);

/// The weight_map of an index, in its order: tensor, file. Names of tensors are unique, those of files are plain: they
/// name something inside the folder. Errors name `name` and the byte that reading had come to.
using SafetensorsWeightMap = std::vector<std::pair<std::string, std::string>>;
Expected<SafetensorsWeightMap> parse_safetensors_index(std::string_view text, const std::string& name);

/// Filled by safetensors_reader.cpp and read by safetensors_file.cpp.
struct SafetensorsFile::State {
  MappedFile mapping;  ///< empty when the caller owns the bytes
  std::string path;
  std::span<const std::byte> bytes;
  std::deque<std::string> texts;  ///< names, keys and values, without the escapes that the file may spell them with
  std::vector<SafetensorsMetadata> metadata;
  std::vector<SafetensorsTensor> tensors;
  NameIndex names;
};

}  // namespace octalane
