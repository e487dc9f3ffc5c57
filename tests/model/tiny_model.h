// Tiny models of every family and rope variant, by the formula of tiny_models.py, as recipes that a test may spoil.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "files/gguf.h"

namespace octalane::tiny {

inline constexpr int64_t kVocabulary = 300, kEmbedding = 64, kFeedForward = 96, kLayers = 2, kTokens = 40;
inline constexpr uint32_t kF32 = 0, kQ8_0 = 8;

struct Key {
  std::string name;
  GgufType type;
  GgufScalar value;
};

struct Tensor {
  std::string name;
  uint32_t ggml_type;
  std::vector<int64_t> shape;  // [cols, rows]
  std::vector<std::byte> bytes;
};

/// A model file to be: everything in it can be changed before it is written.
struct Recipe {
  std::string architecture;
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  /// Sets "<architecture>.<name>".
  void set(const std::string& name, GgufType type, GgufScalar value);
  void set_full(const std::string& name, GgufType type, GgufScalar value);
  void remove_key(const std::string& name);
  void remove_tensor(const std::string& name);
  Tensor& tensor(const std::string& name);
  void add_vector(const std::string& name, int64_t size);
  void add_matrix(const std::string& name, int64_t rows, int64_t cols);
  /// Writes and maps it; the file's name is gone when this returns.
  Expected<GgufFile> open() const;
};

struct Variant {
  std::string name;
  std::string architecture;
  int64_t head_dim = 16;
  bool tied = true;
  std::vector<std::string> biases;
  bool divisors = false;
  std::vector<Key> keys;  // names without the architecture
  bool llama_cpp = true;  // recorded by llama.cpp, else by fp64 numpy
};

const std::vector<Variant>& variants();
const Variant& variant(const std::string& name);
Recipe recipe(const Variant& variant);

/// The tokens whose logits are recorded, and the positions recorded.
std::vector<int32_t> tokens(int64_t count = kTokens);
std::vector<int64_t> recorded_positions();

}  // namespace octalane::tiny
