// The rows that record_ggml_errors.py gave to ggml's quantizer, made anew: the same generator, the same model tensors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numbers>
#include <string>
#include <vector>

#include "core/status.h"
#include "files/gguf.h"
#include "formats/golden.h"

namespace octalane {

/// splitmix64 (https://prng.di.unimi.it/splitmix64.c): the top 53 bits of each output, as fp64 in [0, 1).
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : state_(seed) {}
  double next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

/// Normal values by Box-Muller. count is even.
inline std::vector<float> gauss_rows(uint64_t seed, size_t count, double spread) {
  Uniform uniform(seed);
  std::vector<float> rows(count);
  for (size_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform.next()));
    const double angle = 2 * std::numbers::pi * uniform.next();
    rows[i] = static_cast<float>(spread * (radius * std::cos(angle)));
    rows[i + 1] = static_cast<float>(spread * (radius * std::sin(angle)));
  }
  return rows;
}

inline std::vector<float> laplace_rows(uint64_t seed, size_t count, double spread) {
  Uniform uniform(seed);
  std::vector<float> rows(count);
  for (float& value : rows) {
    const double u = uniform.next() - 0.5;
    value = static_cast<float>(spread * -std::copysign(1.0, u) * std::log1p(-2 * std::fabs(u)));
  }
  return rows;
}

/// Where `make run` keeps the model.
inline std::string real_model_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return folder + "/octalane/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// The first `count` values of a tensor of the real model, decoded.
inline Expected<std::vector<float>> real_rows(const std::string& tensor_name, size_t count) {
  const Expected<GgufFile> file = GgufFile::open(real_model_path());
  if (!file) return fail_with(file);
  const GgufTensor* tensor = file->find_tensor(tensor_name);
  if (tensor == nullptr) return fail("{}: no tensor {}", real_model_path(), tensor_name);
  const Format* format = find_ggml_format(tensor->ggml_type);
  if (format == nullptr) return fail("{}: not a known format", tensor_name);
  const std::vector<std::byte> blocks(tensor->data, tensor->data + format->row_bytes(static_cast<int64_t>(count)));
  return decode(*format, blocks);
}

}  // namespace octalane
