#include "checkpoint/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "checkpoint/writer.h"
#include "files/quote.h"

namespace octalane {
namespace {

constexpr std::array<std::string_view, 3> kArchitectures{"llama", "qwen2", "qwen3"};

/// Facts of the same meaning under both names.
struct Fact {
  std::string_view gguf, config;
  bool real = false, required = true;
};
constexpr std::array kFacts = std::to_array<Fact>({
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads", false, false},
    {"attention.key_length", "head_dim", false, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"vocab_size", "vocab_size"},
});

/// "llama3" scaling: wavelengths below original / high keep their angle, above original / low they are divided by the
/// factor, between the two it is mixed. https://huggingface.co/docs/transformers/internal/rope_utils
struct Llama3Scaling {
  double factor = 8, low = 1, high = 4, original = 8192;

  std::vector<float> divisors(int64_t dimensions, double base) const {
    std::vector<float> out;
    for (int64_t i = 0; i < dimensions / 2; ++i) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dimensions));
      const double turns = original * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      out.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
    }
    return out;
  }
};

/// What config.json says of rotary positions: "rope_scaling", or "rope_parameters" since transformers 5.
struct RopeFacts {
  std::string type = "default";
  double base = 10000;
  const Json* scaling = nullptr;

  double number(std::string_view key, double fallback) const {
    return scaling == nullptr ? fallback : number_of(member(*scaling, key)).value_or(fallback);
  }
};

RopeFacts rope_facts(const Json& config) {
  RopeFacts rope;
  rope.scaling = member(config, "rope_scaling");
  if (rope.scaling == nullptr) rope.scaling = member(config, "rope_parameters");
  rope.base = number_of(member(config, "rope_theta")).value_or(rope.number("rope_theta", 10000));
  if (rope.scaling == nullptr) return rope;
  for (const std::string_view key : {"type", "rope_type"}) {
    if (const auto type = text_of(member(*rope.scaling, key))) rope.type = *type;
  }
  return rope;
}

int64_t head_dim_of(const Json& config) {
  if (const auto given = integer_of(member(config, "head_dim"))) return *given;
  const int64_t heads = integer_of(member(config, "num_attention_heads")).value_or(0);
  return heads > 0 ? integer_of(member(config, "hidden_size")).value_or(0) / heads : 0;
}

Status wrong_type(const std::string& path, std::string_view key, const char* wanted) {
  return fail("{}: {}: wanted {}", path, key, wanted);
}

/// Keys that may be absent, or null, but not of another type: a default in their place would go unnoticed.
Status check_types(const Json& config, const std::string& path) {
  for (const std::string_view key :
       {"use_sliding_window", "tie_word_embeddings", "rope_traditional", "attention_bias"}) {
    const Json* value = member(config, key);
    if (value != nullptr && !value->is_boolean()) return wrong_type(path, key, "true or false");
  }
  const Json* activation = member(config, "hidden_act");
  if (activation != nullptr && !activation->is_string()) return wrong_type(path, "hidden_act", "a text");
  for (const std::string_view key : {"rope_theta", "partial_rotary_factor"}) {
    const Json* value = member(config, key);
    if (value != nullptr && !number_of(value)) return wrong_type(path, key, "a number");
  }
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = member(config, key);
    if (value == nullptr) continue;
    if (!value->is_object()) return wrong_type(path, key, "an object");
    for (const auto& [name, part] : value->items()) {
      const bool text = name == "type" || name == "rope_type";
      if (text ? !part.is_string() : !part.is_number() && !part.is_boolean() && !part.is_null()) {
        return wrong_type(path, fmt::format("{}.{}", key, name), text ? "a text" : "a number");
      }
    }
    const bool typed = member(*value, "type") != nullptr || member(*value, "rope_type") != nullptr;
    if (!typed && member(*value, "factor") != nullptr)
      return wrong_type(path, fmt::format("{}.rope_type", key), "a text");
  }
  return {};
}

Status check_kind(const Json& config, const std::string& path) {
  if (const Status done = check_types(config, path); !done) return done;
  const auto activation = text_of(member(config, "hidden_act"));
  if (activation && *activation != "silu") return fail("{}: hidden_act: wanted silu, got {}", path, quote(*activation));
  if (boolean_of(member(config, "use_sliding_window")).value_or(false)) {
    return fail("{}: use_sliding_window: wanted full attention, got a sliding window", path);
  }
  if (const Json* types = member(config, "layer_types"); types != nullptr && types->is_array()) {
    for (const Json& type : *types) {
      if (text_of(&type) != "full_attention") {
        return fail("{}: layer_types: wanted full_attention in every layer, got {}", path, quote(type.dump()));
      }
    }
  }
  return {};
}

Status set_rope(const Json& config, const std::string& path, const std::string& architecture, GgufWriter& out) {
  const RopeFacts rope = rope_facts(config);
  const auto key = [&](std::string_view name) { return fmt::format("{}.rope.{}", architecture, name); };
  out.set(key("freq_base"), GgufType::f32, rope.base);
  const double share = number_of(member(config, "partial_rotary_factor")).value_or(1);
  if (share != 1) {
    const auto dimensions = static_cast<int64_t>(static_cast<double>(head_dim_of(config)) * share);
    out.set(key("dimension_count"), GgufType::u32, dimensions);
  }
  const bool adjacent = boolean_of(member(config, "rope_traditional")).value_or(false);
  out.set(kRopePairsKey, GgufType::string, std::string_view(adjacent ? "adjacent" : "halves"));
  if (rope.type == "default" || rope.type == "llama3") return {};
  if (rope.type != "linear" && rope.type != "yarn") {
    return fail("{}: rope_scaling: wanted default, linear, llama3 or yarn, got {}", path, quote(rope.type));
  }
  const double factor = rope.number("factor", 0);
  if (!(factor > 0)) return fail("{}: rope_scaling.factor: wanted a number above 0, got {}", path, factor);
  out.set(key("scaling.type"), GgufType::string, std::string_view(rope.type));
  out.set(key("scaling.factor"), GgufType::f32, factor);
  if (rope.type == "linear") return {};
  const double original = rope.number("original_max_position_embeddings", 0);
  if (original > 0) out.set(key("scaling.original_context_length"), GgufType::u32, static_cast<int64_t>(original));
  out.set(key("scaling.yarn_beta_fast"), GgufType::f32, rope.number("beta_fast", 32));
  out.set(key("scaling.yarn_beta_slow"), GgufType::f32, rope.number("beta_slow", 1));
  return {};
}

}  // namespace

Status set_config_keys(const Json& config, const std::string& path, GgufWriter& out) {
  const auto type = text_of(member(config, "model_type"));
  if (!type || std::ranges::find(kArchitectures, *type) == kArchitectures.end()) {
    return fail("{}: model_type: wanted llama, qwen2 or qwen3, got {}", path, type ? quote(*type) : "nothing");
  }
  const std::string architecture(*type);
  if (const Status done = check_kind(config, path); !done) return done;
  out.set("general.architecture", GgufType::string, *type);
  for (const Fact& fact : kFacts) {
    const Json* value = member(config, fact.config);
    if (value == nullptr && !fact.required) continue;
    const std::string key = fmt::format("{}.{}", architecture, fact.gguf);
    if (fact.real) {
      const auto number = number_of(value);
      if (!number) return fail("{}: {}: wanted a number", path, fact.config);
      out.set(key, GgufType::f32, *number);
    } else {
      const auto whole = integer_of(value);
      if (!whole || *whole < 0 || *whole > INT32_MAX) return fail("{}: {}: wanted a whole number", path, fact.config);
      out.set(key, GgufType::u32, *whole);
    }
  }
  return set_rope(config, path, architecture, out);
}

Expected<std::vector<float>> rope_divisors(const Json& config, const std::string& path) {
  const RopeFacts rope = rope_facts(config);
  if (rope.type != "llama3") return std::vector<float>{};
  const Llama3Scaling scaling{rope.number("factor", 0), rope.number("low_freq_factor", 1),
                              rope.number("high_freq_factor", 4),
                              rope.number("original_max_position_embeddings", 8192)};
  const int64_t dimensions = head_dim_of(config);
  if (!(scaling.factor > 0) || !(scaling.high > scaling.low) || !(scaling.original > 0) || dimensions <= 0 ||
      dimensions > 1 << 20) {
    return fail("{}: rope_scaling: wanted a factor above 0 and high_freq_factor above low_freq_factor", path);
  }
  return scaling.divisors(dimensions, rope.base);
}

std::vector<std::string> keys_folders_lack(const GgufFile& metadata) {
  // Beside what config.json says: what follows from the weights, or repeats another key.
  constexpr std::array<std::string_view, 5> kOthers{"general.architecture", "general.file_type",
                                                    "general.quantization_version", "general.alignment", kRopePairsKey};
  constexpr std::array<std::string_view, 10> kTokenizer{
      "ggml.model",        "ggml.pre",          "ggml.tokens",           "ggml.token_type",    "ggml.merges",
      "ggml.bos_token_id", "ggml.eos_token_id", "ggml.padding_token_id", "ggml.add_bos_token", "chat_template"};
  const std::string architecture(metadata.get_or<std::string_view>("general.architecture", "").value_or(""));
  const auto has_place = [&](std::string_view key) {
    if (std::ranges::find(kOthers, key) != kOthers.end()) return true;
    const std::string_view part = key.substr(std::min(key.size(), key.find('.') + 1));
    if (key.starts_with("tokenizer.")) return std::ranges::find(kTokenizer, part) != kTokenizer.end();
    if (!key.starts_with(architecture + ".")) return false;
    return part.starts_with("rope.") || part == "attention.value_length" ||
           std::ranges::find(kFacts, part, &Fact::gguf) != kFacts.end();
  };
  std::vector<std::string> out;
  for (const auto& [key, value] : metadata.metadata()) {
    if (!has_place(key)) out.emplace_back(key);
  }
  return out;
}

namespace {

/// The scaling whose divisors these are, with the usual other three numbers.
Expected<Json> llama3_scaling_of(std::span<const float> divisors, double base) {
  const Llama3Scaling scaling{.factor = *std::ranges::max_element(divisors)};
  const std::vector<float> same = scaling.divisors(2 * static_cast<int64_t>(divisors.size()), base);
  for (size_t i = 0; i < same.size(); ++i) {
    if (std::abs(same[i] - divisors[i]) > 1e-4f * same[i]) {
      return fail(
          "rope_freqs.weight: wanted the divisors of llama3 scaling (low 1, high 4, original length 8192), got "
          "{} for pair {} in place of {}",
          divisors[i], i, same[i]);
    }
  }
  return Json{{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low},
              {"high_freq_factor", scaling.high},
              {"original_max_position_embeddings", static_cast<int64_t>(scaling.original)}};
}

Expected<Json> scaling_of(const GgufFile& metadata, const std::string& prefix, double base,
                          std::span<const float> divisors) {
  if (!divisors.empty()) return llama3_scaling_of(divisors, base);
  const auto type = metadata.get_or<std::string_view>(prefix + "type", "none");
  const auto factor = metadata.get_or<double>(prefix + "factor", 0.0);
  const auto original = metadata.get_or<int64_t>(prefix + "original_context_length", 0);
  if (!type) return fail_with(type);
  if (!factor) return fail_with(factor);
  if (!original) return fail_with(original);
  if (*type == "none" || *factor == 0 || *factor == 1) return Json();
  Json scaling{{"rope_type", *type}, {"factor", *factor}};
  if (*original > 0) scaling["original_max_position_embeddings"] = *original;
  return scaling;
}

}  // namespace

Expected<Json> config_of(const GgufFile& metadata, bool tied_head, bool qkv_bias, std::span<const float> divisors) {
  const auto architecture = metadata.get<std::string_view>("general.architecture");
  if (!architecture) return fail_with(architecture);
  if (std::ranges::find(kArchitectures, *architecture) == kArchitectures.end()) {
    return fail("general.architecture: wanted llama, qwen2 or qwen3, got {}", quote(*architecture));
  }
  constexpr std::array<std::string_view, 3> kClasses{"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
  const auto index = std::ranges::find(kArchitectures, *architecture) - kArchitectures.begin();
  Json config{{"architectures", Json::array({kClasses[static_cast<size_t>(index)]})},
              {"model_type", *architecture},
              {"hidden_act", "silu"},
              {"attention_bias", qkv_bias},
              {"tie_word_embeddings", tied_head}};
  const std::string prefix = fmt::format("{}.", *architecture);
  for (const Fact& fact : kFacts) {
    const std::string key = fmt::format("{}{}", prefix, fact.gguf);
    if (metadata.find(key) == nullptr) continue;  // whoever loads the model says what is missing
    if (fact.real) {
      const auto value = metadata.get<double>(key);
      if (!value) return fail_with(value);
      config[std::string(fact.config)] = *value;
    } else {
      const auto value = metadata.get<int64_t>(key);
      if (!value) return fail_with(value);
      config[std::string(fact.config)] = *value;
    }
  }
  if (*architecture != "llama" && member(config, "head_dim") == nullptr) config["head_dim"] = head_dim_of(config);
  const auto base = metadata.get_or<double>(prefix + "rope.freq_base", 10000.0);
  if (!base) return fail_with(base);
  config["rope_theta"] = *base;
  const Expected<Json> scaling = scaling_of(metadata, prefix + "rope.scaling.", *base, divisors);
  if (!scaling) return fail_with(scaling);
  config["rope_scaling"] = *scaling;
  return config;
}

}  // namespace octalane
