// Shared by the hostile tests and the fuzzer, which has no GoogleTest.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "files/safetensors.h"

namespace octalane::testing {

/// Reads everything that a parsed file offers. Aborts where a promise of the reader is broken; the result depends on
/// all that was read.
inline uint64_t read_everything(const SafetensorsFile& file, const std::byte* begin) {
  uint64_t sum = 0, bytes = 0;
  const auto add = [&sum](std::string_view text) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
  };
  for (const auto& [key, value] : file.metadata()) {
    add(key);
    add(value);
  }
  for (const SafetensorsTensor& tensor : file.tensors()) {
    add(tensor.name);
    add(tensor.dtype);
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    if (tensor.data < begin || tensor.data + tensor.bytes > begin + file.file_bytes()) std::abort();
    const auto expected = safetensors_tensor_bytes(tensor.dtype, tensor.shape);
    if (!expected || *expected != tensor.bytes) std::abort();
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<uint64_t>(tensor.data[i]);
    bytes += tensor.bytes;
    file.release(tensor);
  }
  if (bytes > file.file_bytes()) std::abort();  // or tensors overlap
  return sum;
}

}  // namespace octalane::testing
