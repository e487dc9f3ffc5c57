// What a model file says of its transformer: read from GGUF metadata and checked before any tensor is touched.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "core/status.h"

namespace octalane {

/// Which two elements of a head one angle turns.
enum class RopePairs : uint8_t {
  adjacent,  ///< (2i, 2i + 1): llama, whose GGUF files hold permuted q and k rows
  halves,    ///< (i, i + dimensions / 2): qwen2, qwen3, and llama in model folders
};

enum class RopeScaling : uint8_t { none, linear, yarn };

/// Rotary positions. The angle of pair i at position p is p * base^(-2i / dimensions), scaled as `scaling` says.
struct RopeConfig {
  RopePairs pairs = RopePairs::adjacent;
  int64_t dimensions = 0;  ///< elements of a head that turn, from its start; even, <= head_dim
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;             ///< the context is stretched by this (linear, yarn)
  int64_t original_context = 0;  ///< yarn: the length trained for before stretching
  double attention_factor = 1;   ///< multiplies cosines and sines
  double beta_fast = 32;         ///< yarn: pairs turning more often than this over original_context keep their angle,
  double beta_slow = 1;          ///< less often than this: divided by factor; between: mixed
};

struct ModelConfig {
  std::string architecture;
  int64_t layers = 0, embedding = 0, feed_forward = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  int64_t context = 0;  ///< the length it was trained for
  float norm_epsilon = 0;
  float attention_scale = 0;  ///< of q k^T before the softmax
  RopeConfig rope;
  bool head_norms = false;  ///< q and k are normed per head before they turn (qwen3)
};

/// Errors name the key, what was wanted and what was found: unknown architectures, mixtures of experts, shapes that
/// differ from layer to layer, unknown rope scalings, and values that no model can have.
/// `vocabulary` is the number of the tokenizer's tokens, else vocab_size, else the rows of token_embd.weight.
Expected<ModelConfig> read_model_config(const Checkpoint& checkpoint);

}  // namespace octalane
