// The shapes of real models, for files of random weights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace octalane::cli {

struct SynthShape {
  std::string_view name;
  std::string_view architecture;
  std::string_view pre_tokenizer;
  int64_t layers, embedding, feed_forward, heads, kv_heads, head_dim, vocabulary, context;
  double rope_base;
  double norm_epsilon;
  bool tied_output = false;  ///< the embedding is the output matrix too
  bool qkv_bias = false;     ///< qwen2
  bool qk_norm = false;      ///< qwen3
  double rope_factor = 0;    ///< llama 3.1 and later: rope_freqs.weight with this factor
};

std::span<const SynthShape> synth_shapes();
const SynthShape* find_synth_shape(std::string_view name);

}  // namespace octalane::cli
