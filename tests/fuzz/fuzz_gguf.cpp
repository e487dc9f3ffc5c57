// Any bytes at all: parse them as GGUF, and read everything that a file so accepted offers.
#include <cstdlib>

#include "files/gguf.h"
#include "files/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = octalane::GgufFile::parse(bytes, "fuzz");
  if (file) {
    octalane::testing::read_everything(*file, bytes.data());
  } else if (!file.error().message.starts_with("fuzz: ") || file.error().message.find('\n') != std::string::npos) {
    std::abort();  // an error is one line that names the file
  }
  return 0;
}
