#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace octalane {
namespace {

/// Far above any model's sizes and low enough that products of three stay inside int64.
constexpr int64_t kMaxSize = int64_t{1} << 20;

struct Family {
  std::string_view architecture;
  RopePairs pairs;
  bool head_norms;
};
constexpr std::array<Family, 3> kFamilies{{
    {"llama", RopePairs::adjacent, false},
    {"qwen2", RopePairs::halves, false},
    {"qwen3", RopePairs::halves, true},
}};

/// Reads the keys of one architecture. The first error stays and everything read after it is the fallback, so a
/// caller asks for all keys in a row and looks at `status` once.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  const Status& status() const { return status_; }

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }

  /// An integer in [low, high]; required without a fallback. An array (one value per layer) must be uniform.
  int64_t integer(std::string_view name, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) {
    if (!wanted(name, fallback.has_value())) return fallback.value_or(0);
    const Expected<int64_t> value = uniform(key(name));
    if (!value) return keep(value, fallback.value_or(0));
    if (*value >= low && *value <= high) return *value;
    status_ = fail("{}: wanted {} to {}, got {}", key(name), low, high, *value);
    return fallback.value_or(0);
  }

  /// A finite number > 0 (or >= 0); required without a fallback.
  double number(std::string_view name, bool zero_allowed, std::optional<double> fallback = {}) {
    if (!wanted(name, fallback.has_value())) return fallback.value_or(0);
    const Expected<double> value = file_.get<double>(key(name));
    if (!value) return keep(value, fallback.value_or(0));
    const bool in_range = zero_allowed ? *value >= 0 : *value > 0;
    if (in_range && *value <= std::numeric_limits<float>::max()) return *value;
    status_ = fail("{}: wanted a finite number {} 0, got {}", key(name), zero_allowed ? ">=" : ">", *value);
    return fallback.value_or(0);
  }

  std::string_view text(std::string_view name, std::string_view fallback) {
    if (!wanted(name, true)) return fallback;
    const Expected<std::string_view> value = file_.get<std::string_view>(key(name));
    return value ? *value : keep(value, fallback);
  }

  /// How heads turn where the checkpoint says so itself: model folders do.
  RopePairs rope_pairs(RopePairs usual) const {
    const auto said = file_.get_or<std::string_view>("octalane.rope_pairs", "");
    if (said && *said == "halves") return RopePairs::halves;
    if (said && *said == "adjacent") return RopePairs::adjacent;
    return usual;
  }

  /// Keeps an error of the caller's own check.
  template <class... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    if (status_) status_ = fail(format, std::forward<Args>(args)...);
  }

 private:
  bool wanted(std::string_view name, bool optional) {
    if (!status_) return false;
    if (has(name)) return true;
    if (!optional) status_ = fail("{}: the key is missing", key(name));
    return false;
  }

  template <class T>
  T keep(const Expected<T>& failed, T fallback) {
    status_ = fail_with(failed);
    return fallback;
  }

  Expected<int64_t> uniform(const std::string& full) const {
    if (file_.find(full)->type != GgufType::array) return file_.get<int64_t>(full);
    const Expected<std::vector<int64_t>> values = file_.get_array<int64_t>(full);
    if (!values) return fail_with(values);
    if (values->empty()) return fail("{}: wanted one value, got an empty array", full);
    const auto other = std::adjacent_find(values->begin(), values->end(), std::not_equal_to<>());
    if (other == values->end()) return values->front();
    return fail("{}: wanted the same value for every layer, got {} and {}", full, *other, *(other + 1));
  }

  const GgufFile& file_;
  std::string_view architecture_;
  Status status_;
};

Expected<Family> find_family(const GgufFile& file) {
  const Expected<std::string_view> architecture = file.get<std::string_view>("general.architecture");
  if (!architecture) return fail_with(architecture);
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == *architecture) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return fail("general.architecture: wanted one of {}, got \"{}\"", known, *architecture);
}

void read_rope_scaling(Keys& keys, RopeConfig& rope, int64_t context) {
  // Files without a type but with a factor are linear; the second name of the factor is that of old files.
  const std::string_view type = keys.text("rope.scaling.type", "linear");
  const bool old_name = !keys.has("rope.scaling.factor") && keys.has("rope.scale_linear");
  const double factor = keys.number(old_name ? "rope.scale_linear" : "rope.scaling.factor", true, 0.0);
  rope.factor = factor == 0 ? 1 : factor;
  rope.attention_factor = keys.number("rope.scaling.attn_factor", false, 1.0);
  if (type == "none") {
    rope.factor = 1;
  } else if (type == "linear") {
    rope.scaling = rope.factor == 1 ? RopeScaling::none : RopeScaling::linear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.original_context =
        keys.integer("rope.scaling.original_context_length", 1, std::numeric_limits<int32_t>::max(), context);
    rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", false, 32.0);
    rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", false, 1.0);
  } else {
    keys.refuse("{}: wanted none, linear or yarn, got \"{}\"", keys.key("rope.scaling.type"), type);
  }
}

void read_rope(Keys& keys, const Family& family, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.pairs = keys.rope_pairs(family.pairs);
  rope.dimensions = keys.integer("rope.dimension_count", 1, config.head_dim, config.head_dim);
  if (keys.status() && rope.dimensions % 2 != 0) {
    keys.refuse("{}: wanted an even number, got {}", keys.key("rope.dimension_count"), rope.dimensions);
  }
  rope.base = keys.number("rope.freq_base", false, 10000.0);
  read_rope_scaling(keys, rope, config.context);
  if (rope.scaling == RopeScaling::yarn && rope.base <= 1) {
    keys.refuse("{}: wanted more than 1, got {}", keys.key("rope.freq_base"), rope.base);
  }
}

void read_heads(Keys& keys, ModelConfig& config) {
  config.heads = keys.integer("attention.head_count", 1, kMaxSize);
  config.kv_heads = keys.integer("attention.head_count_kv", 1, kMaxSize, config.heads);
  if (!keys.status()) return;
  if (config.heads % config.kv_heads != 0) {
    keys.refuse("{}: wanted a divisor of {} heads, got {}", keys.key("attention.head_count_kv"), config.heads,
                config.kv_heads);
  }
  if (!keys.has("attention.key_length") && config.embedding % config.heads != 0) {
    keys.refuse("{}: wanted a divisor of the embedding length {}, got {}", keys.key("attention.head_count"),
                config.embedding, config.heads);
  }
  config.head_dim = keys.integer("attention.key_length", 1, kMaxSize, config.embedding / config.heads);
  const int64_t value_length = keys.integer("attention.value_length", 1, kMaxSize, config.head_dim);
  if (value_length != config.head_dim) {
    keys.refuse("{}: wanted the key length {}, got {}", keys.key("attention.value_length"), config.head_dim,
                value_length);
  }
  const double scale = keys.number("attention.scale", true, 0.0);
  config.attention_scale =
      scale != 0 ? static_cast<float>(scale) : 1.0f / std::sqrt(static_cast<float>(config.head_dim));
}

int64_t read_vocabulary(const Checkpoint& checkpoint, Keys& keys) {
  const GgufValue* tokens = checkpoint.metadata().find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->type == GgufType::array && tokens->array.count > 0) {
    if (tokens->array.count <= std::numeric_limits<int32_t>::max()) return static_cast<int64_t>(tokens->array.count);
    keys.refuse("tokenizer.ggml.tokens: wanted fewer than 2^31 tokens, got {}", tokens->array.count);
  }
  const CheckpointTensor* embedding = checkpoint.find_role("token_embd.weight");
  const int64_t rows = embedding == nullptr ? 1 : embedding->rows();
  return keys.integer("vocab_size", 1, std::numeric_limits<int32_t>::max(), rows);
}

}  // namespace

Expected<ModelConfig> read_model_config(const Checkpoint& checkpoint) {
  if (!checkpoint.model_status()) return fail_with(checkpoint.model_status());
  const GgufFile& file = checkpoint.metadata();
  const Expected<Family> family = find_family(file);
  if (!family) return fail_with(family);
  Keys keys(file, family->architecture);
  const int64_t experts = keys.integer("expert_count", 0, kMaxSize, 0);
  if (experts != 0) {
    keys.refuse("{}: wanted 0 (mixtures of experts are not supported), got {}", keys.key("expert_count"), experts);
  }
  ModelConfig config;
  config.architecture = family->architecture;
  config.head_norms = family->head_norms;
  config.layers = keys.integer("block_count", 1, kMaxSize);
  config.embedding = keys.integer("embedding_length", 1, kMaxSize);
  config.feed_forward = keys.integer("feed_forward_length", 1, kMaxSize);
  config.context = keys.integer("context_length", 1, std::numeric_limits<int32_t>::max());
  config.norm_epsilon = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", true));
  read_heads(keys, config);
  read_rope(keys, *family, config);
  config.vocabulary = read_vocabulary(checkpoint, keys);
  if (!keys.status()) return fail_with(keys.status());
  return config;
}

}  // namespace octalane
