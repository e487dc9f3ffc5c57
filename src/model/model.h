// Decoder-only transformers of the llama, qwen2 and qwen3 architectures over GGUF weights: prefill and decode.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"
#include "files/gguf.h"
#include "linear/linear.h"

namespace octalane {

struct ModelConfig {
  std::string architecture;
  int64_t layers = 0, embedding = 0, feed_forward = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  int64_t context = 0;  ///< the length it was trained for
  float norm_epsilon = 0;
};

/// Keys and values of the positions seen so far, IEEE halves.
class KvCache {
 public:
  KvCache(const ModelConfig& config, int64_t capacity);
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }
  int64_t bytes() const;
  /// Forgets every position from `size` on.
  void truncate(int64_t size) { size_ = size < size_ ? size : size_; }

 private:
  friend class Model;
  int64_t row_, capacity_, size_ = 0;      // row_: kv_heads * head_dim
  AlignedBuffer<uint16_t> keys_, values_;  // [layer][kv_head][capacity][head_dim]
};

class Model {
 public:
  /// Binds every weight to the context's machine, releasing the file's pages as it goes. Errors name the key or tensor.
  static Expected<Model> load(Context& context, const GgufFile& file);

  const ModelConfig& config() const;

  /// Runs `tokens` at the cache's next positions and appends them. logits[R, vocabulary]: the last R <= tokens.size()
  /// positions. The same to the bit for any split of a prompt into calls and any number of threads.
  /// Errors: cache full, a token outside the vocabulary, logits of a wrong shape.
  Status forward(Context& context, std::span<const int32_t> tokens, KvCache& cache, MatrixView<float> logits) const;

  /// Every bound product, for plans and listings.
  std::span<const Linear* const> linears() const;

 private:
  struct State;
  explicit Model(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace octalane
