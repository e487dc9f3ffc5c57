// Any bytes at all: parse them as a safetensors file, and read everything that a file so accepted offers; and as the
// index of one in shards.
#include <cstdlib>

#include "files/read_safetensors.h"
#include "files/safetensors_state.h"

namespace {

void expect_one_line(const std::string& message) {
  if (!message.starts_with("fuzz: ") || message.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = octalane::SafetensorsFile::parse(bytes, "fuzz");
  if (file) {
    octalane::testing::read_everything(*file, bytes.data());
  } else {
    expect_one_line(file.error().message);
  }
  const auto map = octalane::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!map) {
    expect_one_line(map.error().message);
    return 0;
  }
  for (const auto& [tensor, name] : *map) {
    if (name.empty() || name == ".." || name.find('/') != std::string::npos) std::abort();
  }
  return 0;
}
