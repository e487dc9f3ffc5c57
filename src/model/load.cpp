// Binds a file's tensors to a model: every shape is checked, every tensor is used or named in an error.
#include <algorithm>
#include <cmath>
#include <set>

#include "model/model_state.h"

namespace octalane {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text;
  for (const int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  return text.empty() ? "a scalar" : text;
}

bool same_shape(std::span<const int64_t> wanted, std::span<const int64_t> got) {
  const size_t size = std::max(wanted.size(), got.size());
  for (size_t i = 0; i < size; ++i) {
    if ((i < wanted.size() ? wanted[i] : 1) != (i < got.size() ? got[i] : 1)) return false;
  }
  return true;
}

}  // namespace

/// Takes tensors from a file. The first error stays and everything after it comes out empty, so that a model's tensors
/// read as a list; `status` is looked at once.
class Model::Loader {
 public:
  Loader(Context& context, const Checkpoint& file) : context_(context), file_(file) {}

  const Status& status() const { return status_; }

  /// A tensor of exactly this shape whose values can be decoded. Null on error, and when it is optional and absent.
  const CheckpointTensor* take(const std::string& name, std::initializer_list<int64_t> shape, bool optional = false) {
    if (!status_) return nullptr;
    const CheckpointTensor* tensor = file_.find_role(name);
    if (tensor == nullptr) {
      if (!optional) status_ = fail("{}: the tensor is missing", name);
      return nullptr;
    }
    used_.insert(tensor->name);
    if (tensor->format == nullptr) {
      status_ = fail("{}: weights of type {} are not supported", tensor->name, tensor->type);
      return nullptr;
    }
    if (!same_shape({shape.begin(), shape.size()}, tensor->shape)) {
      status_ = fail("{}: wanted {}, got {}", tensor->name, shape_text({shape.begin(), shape.size()}),
                     shape_text(tensor->shape));
      return nullptr;
    }
    return tensor;
  }

  std::vector<float> vector(const std::string& name, int64_t size, bool optional = false) {
    const CheckpointTensor* tensor = take(name, {size}, optional);
    if (tensor == nullptr) return {};
    const Format& format = *tensor->format;
    if (size % format.block != 0) {
      status_ =
          fail("{}: {} values is not a multiple of {}, the block of {}", tensor->name, size, format.block, format.name);
      return {};
    }
    std::vector<float> values(static_cast<size_t>(size));
    tensor->matrix().decode_row(0, values.data());
    file_.release(*tensor);
    return values;
  }

  Linear linear(const std::string& name, int64_t cols, int64_t rows) {
    const CheckpointTensor* tensor = take(name, {cols, rows});
    if (tensor == nullptr) return {};
    Expected<Linear> bound = Linear::bind(context_, tensor->name, tensor->matrix());
    file_.release(*tensor);
    if (bound) return std::move(*bound);
    status_ = fail_with(bound);
    return {};
  }

  Product product(const std::string& name, int64_t cols, int64_t rows) {
    Product product;
    product.weights = linear(name + ".weight", cols, rows);
    product.bias = vector(name + ".bias", rows, true);
    return product;
  }

  Layer layer(const ModelConfig& c, int64_t index) {
    const auto name = [index](const char* part) { return fmt::format("blk.{}.{}", index, part); };
    const int64_t q_size = c.heads * c.head_dim, kv_size = c.kv_heads * c.head_dim;
    Layer layer;
    layer.attention_norm = vector(name("attn_norm.weight"), c.embedding);
    layer.q = product(name("attn_q"), c.embedding, q_size);
    layer.k = product(name("attn_k"), c.embedding, kv_size);
    layer.v = product(name("attn_v"), c.embedding, kv_size);
    if (c.head_norms) {
      layer.q_norm = vector(name("attn_q_norm.weight"), c.head_dim);
      layer.k_norm = vector(name("attn_k_norm.weight"), c.head_dim);
    }
    layer.output = product(name("attn_output"), q_size, c.embedding);
    layer.feed_forward_norm = vector(name("ffn_norm.weight"), c.embedding);
    layer.gate = product(name("ffn_gate"), c.embedding, c.feed_forward);
    layer.up = product(name("ffn_up"), c.embedding, c.feed_forward);
    layer.down = product(name("ffn_down"), c.feed_forward, c.embedding);
    return layer;
  }

  Rope rope(const RopeConfig& config) {
    const std::string name = "rope_freqs.weight";
    const std::vector<float> divisors = vector(name, config.dimensions / 2, true);
    for (const float divisor : divisors) {
      if (!std::isfinite(divisor) || divisor <= 0) {
        if (status_) status_ = fail("{}: wanted finite numbers > 0, got {}", name, divisor);
        return {};
      }
    }
    return Rope(config, divisors);
  }

  /// The head, tied to the embedding unless the file has one of its own.
  void head(const ModelConfig& c, State& state) {
    if (file_.find_role("output.weight") == nullptr) {
      state.head.weights = linear("token_embd.weight", c.embedding, c.vocabulary);
      state.head.bias = vector("output.bias", c.vocabulary, true);
      return;
    }
    state.head = product("output", c.embedding, c.vocabulary);
    const CheckpointTensor* rows = take("token_embd.weight", {c.embedding, c.vocabulary});
    if (rows == nullptr) return;
    if (c.embedding % rows->format->block != 0) {
      status_ = fail("{}: {} columns is not a multiple of {}, the block of {}", rows->name, c.embedding,
                     rows->format->block, rows->format->name);
    }
    state.embedding = FileRows{file_, rows->matrix()};
  }

  /// A tensor nobody asked for would change what the model computes.
  void refuse_unused(const std::string& architecture) {
    for (const CheckpointTensor& tensor : file_.tensors()) {
      if (!status_) return;
      // Precomputed angles, in old files: the same as what the metadata says.
      const bool derived = tensor.name.ends_with(".attn_rot_embd") || tensor.name.ends_with(".rotary_emb.inv_freq");
      if (used_.contains(tensor.name) || derived) continue;
      status_ = fail("{}: not a tensor of the {} architecture", tensor.name, architecture);
    }
  }

 private:
  Context& context_;
  const Checkpoint& file_;
  std::set<std::string_view> used_;
  Status status_;
};

Expected<Model> Model::load(Context& context, const Checkpoint& file) {
  const Expected<ModelConfig> config = read_model_config(file);
  if (!config) return fail_with(config);
  auto state = std::make_shared<State>();
  state->config = *config;

  Loader loader(context, file);
  state->rope = loader.rope(config->rope);
  // The largest tensor first: while it is packed it sits in memory twice, and nothing else does yet.
  loader.head(*config, *state);
  // A layer count that the tensors do not bear out ends at the first missing one.
  for (int64_t i = 0; i < config->layers && loader.status(); ++i) state->layers.push_back(loader.layer(*config, i));
  state->output_norm = loader.vector("output_norm.weight", config->embedding);
  loader.refuse_unused(config->architecture);
  if (!loader.status()) return fail_with(loader.status());

  state->list_linears();
  return Model(std::move(state));
}

Expected<Model> Model::with_lanes(Context& context, const std::function<LaneSelection(const Linear&)>& lanes) const {
  auto state = std::make_shared<State>(*state_);
  Status status;
  state->for_each_linear([&](Linear& weights) {
    const LaneSelection wanted = lanes(weights);
    if (!status || wanted == weights.lanes()) return;
    Expected<Linear> bound = weights.with_lanes(context, wanted);
    if (bound) {
      weights = std::move(*bound);
    } else {
      status = fail_with(bound);
    }
  });
  if (!status) return fail_with(status);
  state->list_linears();
  return Model(std::move(state));
}

const ModelConfig& Model::config() const { return state_->config; }

std::span<const Linear* const> Model::linears() const { return state_->linears; }

}  // namespace octalane
