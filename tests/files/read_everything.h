// Shared by the hostile tests and the fuzzer, which has no GoogleTest.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "files/gguf.h"

namespace octalane::testing {

/// Reads everything that a parsed file offers, through every getter, and each tensor's first and last byte. Aborts
/// where a promise of the reader is broken; the result depends on all that was read.
inline uint64_t read_everything(const GgufFile& file, const std::byte* begin) {
  uint64_t sum = file.version();
  const auto add = [&sum](const auto& got) { sum += got.has_value() ? 1 : got.error().message.size(); };
  for (const auto& [key, value] : file.metadata()) {
    if (file.find(key) != &value) std::abort();
    add(file.get<int64_t>(key));
    add(file.get<double>(key));
    add(file.get<bool>(key));
    add(file.get_or<std::string_view>(key, ""));
    add(file.get_array<int64_t>(key));
    add(file.get_array<int32_t>(key));
    add(file.get_array<double>(key));
    add(file.get_array<float>(key));
    add(file.get_array<bool>(key));
    if (const auto strings = file.get_array<std::string_view>(key)) {
      for (const std::string_view text : *strings) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
      }
    }
    for (const std::byte b : value.array.bytes) sum += static_cast<uint64_t>(b);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    if (tensor.data < begin || tensor.data + tensor.bytes > begin + file.file_bytes()) std::abort();
    int64_t values = 0;
    if (__builtin_mul_overflow(tensor.rows(), tensor.cols(), &values) || values < 0) std::abort();
    if ((values == 0) != (tensor.bytes == 0)) std::abort();
    if (tensor.bytes > 0)
      sum += static_cast<uint64_t>(tensor.data[0]) + static_cast<uint64_t>(tensor.data[tensor.bytes - 1]);
    file.release(tensor);
  }
  return sum;
}

}  // namespace octalane::testing
