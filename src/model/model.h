// Decoder-only transformers of the llama, qwen2 and qwen3 architectures over the weights of a checkpoint: prefill and
// decode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "checkpoint/checkpoint.h"
#include "core/status.h"
#include "linear/linear.h"
#include "model/config.h"
#include "model/kv_cache.h"

namespace octalane {

/// Is shown the input x[tokens][K] of each product, once for products that share it, when they are done with it.
using InputObserver = std::function<void(std::span<const Linear* const> products, MatrixView<const float> x)>;

class Model {
 public:
  /// Binds every weight to the context's machine, releasing the file's pages as it goes. Errors name the key or tensor:
  /// missing, of a wrong shape or type, or not known to the architecture.
  /// A model with its own output head reads embedding rows from the file's bytes, which must then outlive it.
  static Expected<Model> load(Context& context, const Checkpoint& file);

  /// The same model with the lanes that `lanes` names for each product; packed weights are shared (Linear::with_lanes),
  /// so that a model in memory once serves several lanes. Fails when a lane cannot serve a tensor, and names it.
  Expected<Model> with_lanes(Context& context, const std::function<LaneSelection(const Linear&)>& lanes) const;

  const ModelConfig& config() const;

  /// Runs `tokens` at the cache's next positions and appends them. logits[R, vocabulary]: the last R <= tokens.size()
  /// positions; R = 0 only fills the cache. The same to the bit for any split of a prompt into calls and any number of
  /// threads. A prompt of any length may be given at once: it is run in pieces of at most 512 tokens, so that scratch
  /// memory stays near 24 MiB beside the cache.
  /// Errors, before anything is computed: cache full, a token outside the vocabulary, logits of a wrong shape, a cache
  /// made for another model.
  /// With an observer every token goes through all of the last layer, also those without logits.
  Status forward(Context& context, std::span<const int32_t> tokens, KvCache& cache, MatrixView<float> logits,
                 const InputObserver& observer = {}) const;

  /// Every bound product in order of use, for plans and listings. With tied embeddings the head is
  /// "token_embd.weight".
  std::span<const Linear* const> linears() const;

 private:
  struct State;
  class Pass;
  class Loader;
  explicit Model(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace octalane
