#include "cli/conversion.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>

namespace octalane::cli {
namespace {

struct Row {
  std::string_view format;
  std::string_view fallback;  ///< of a smaller block
  int64_t file_type;          ///< llama.cpp's llama_ftype, include/llama.h
};

constexpr std::array kRows = std::to_array<Row>({
    {"f32", "", 0},
    {"f16", "", 1},
    {"bf16", "", 32},
    {"q4_0", "f16", 2},
    {"q4_1", "f16", 3},
    {"q5_0", "f16", 8},
    {"q5_1", "f16", 9},
    {"q8_0", "f16", 7},
    {"q2_k", "q4_0", 10},
    {"q3_k", "q4_0", 11},
    {"q4_k", "q5_0", 14},
    {"q5_k", "q5_1", 16},
    {"q6_k", "q8_0", 18},
    {"iq4_nl", "f16", 25},
    {"iq4_xs", "iq4_nl", 30},
    {"mxfp4", "f16", 38},
});

const Row* find_row(std::string_view format) {
  for (const Row& row : kRows) {
    if (row.format == format) return &row;
  }
  return nullptr;
}

/// The nearest format of smaller blocks with at least the bits of this one.
const Format* next_smaller(const Format& format) {
  std::string name(format.name);
  for (const auto& [group, smaller] : {std::pair{"-g128", "-g64"}, {"-g64", "-g32"}}) {  // of affine formats
    if (const size_t at = name.find(group); at != std::string::npos) {
      return find_format(name.replace(at, std::string_view(group).size(), smaller));
    }
  }
  const Row* row = find_row(format.name);
  return find_format(row != nullptr ? row->fallback : "f16");
}

}  // namespace

PickedFormat format_for_row(const Format& wanted, int64_t cols) {
  const Format* format = &wanted;
  while (cols % format->block != 0) {
    format = next_smaller(*format);
  }
  if (format == &wanted) return {format, ""};
  return {format, fmt::format("{} columns is not a multiple of {}, the block of {}", cols, wanted.block, wanted.name)};
}

PickedFormat format_for_matrix(const Format& wanted, std::string_view role, int64_t cols) {
  if (wanted.additive != nullptr && (role == "token_embd.weight" || role == "output.weight")) {
    return {find_format("f16"), "embedding and output stay f16 beside additive codebooks"};
  }
  return format_for_row(wanted, cols);
}

Container output_container(const std::string& path, const std::string& asked, const Format& format) {
  if (asked == "gguf" || path.ends_with(".gguf")) return Container::gguf;
  return asked == "folder" || !can_hold(Container::gguf, format) ? Container::folder : Container::gguf;
}

uint64_t bytes_on_disk(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return std::filesystem::file_size(path);
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) bytes += entry.file_size();
  return bytes;
}

int64_t gguf_file_type(const Format& format) {
  const Row* row = find_row(format.name);
  return row != nullptr ? row->file_type : -1;
}

}  // namespace octalane::cli
