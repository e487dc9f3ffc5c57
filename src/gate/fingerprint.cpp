#include "gate/fingerprint.h"

#include <algorithm>
#include <vector>

#include "core/fnv1a.h"

namespace octalane {
namespace {

template <class T>
void add_value(Fnv1a& hash, const T& value) {
  hash.add(std::as_bytes(std::span(&value, 1)));
}

/// Texts with their lengths, so that two of them side by side are not another two.
void add_text(Fnv1a& hash, std::string_view text) {
  add_value(hash, static_cast<uint64_t>(text.size()));
  hash.add(text);
}

void add_metadata(Fnv1a& hash, const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    add_text(hash, key);
    add_value(hash, static_cast<uint32_t>(value.type));
    if (value.type == GgufType::array) {
      add_value(hash, static_cast<uint32_t>(value.array.type));
      add_value(hash, value.array.count);
      hash.add(value.array.bytes);
    } else if (const auto* text = std::get_if<std::string_view>(&value.scalar)) {
      add_text(hash, *text);
    } else {
      add_text(hash, std::visit([](auto scalar) { return fmt::format("{}", scalar); }, value.scalar));
    }
  }
}

void add_rows(Fnv1a& hash, const CheckpointTensor& tensor) {
  if (tensor.format == nullptr || tensor.rows() < 1 || tensor.cols() < 1 || tensor.cols() % tensor.format->block != 0) {
    return;
  }
  const StoredMatrix matrix = tensor.matrix();
  std::vector<std::byte> row(static_cast<size_t>(matrix.format->row_bytes(matrix.cols)));
  const std::vector<float> codebooks = matrix.codebooks();
  hash.add(std::as_bytes(std::span(codebooks)));
  const int64_t count = std::min(matrix.rows, kFingerprintRows);
  for (int64_t i = 0; i < count; ++i) {
    matrix.read_row(count > 1 ? i * (matrix.rows - 1) / (count - 1) : 0, row.data());
    hash.add(row);
  }
}

}  // namespace

std::string model_fingerprint(const Checkpoint& checkpoint) {
  Fnv1a hash;
  add_metadata(hash, checkpoint.metadata());
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    add_text(hash, tensor.name);
    add_text(hash, tensor.type);
    for (const int64_t size : tensor.shape) add_value(hash, size);
    add_rows(hash, tensor);
  }
  return hash.hex();
}

}  // namespace octalane
