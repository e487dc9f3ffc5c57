// Any bytes at all: parse them as .npy, and check that the matrix is as large as it says.
#include <cstdlib>

#include "files/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto matrix = octalane::parse_npy(bytes, "fuzz");
  if (matrix) {
    const auto values = static_cast<int64_t>(matrix->values.size());
    if (matrix->rows < 0 || matrix->cols < 0 || matrix->rows * matrix->cols != values) std::abort();
    if (matrix->values.size() * sizeof(float) > size) std::abort();
  } else if (!matrix.error().message.starts_with("fuzz: ") || matrix.error().message.find('\n') != std::string::npos) {
    std::abort();  // an error is one line that names the file
  }
  return 0;
}
