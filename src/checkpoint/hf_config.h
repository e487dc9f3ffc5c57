// config.json of a model folder <-> the keys that GGUF has for the same facts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/json.h"
#include "files/gguf.h"

namespace octalane {

/// What in-memory metadata says of models whose heads turn as pairs (i, i + d / 2), whatever their architecture does in
/// GGUF files: "halves", or "adjacent".
inline constexpr std::string_view kRopePairsKey = "octalane.rope_pairs";

/// Sets architecture, sizes and rotary scaling. Errors name `path` and the key: missing, of a wrong type, or a kind of
/// model that is not one of llama, qwen2, qwen3 with full attention and SiLU.
Status set_config_keys(const Json& config, const std::string& path, GgufWriter& out);

/// The numbers that "llama3" scaling divides rotary frequencies by, one per pair; empty for every other kind.
Expected<std::vector<float>> rope_divisors(const Json& config, const std::string& path);

/// config.json, without what is said of quantization, for metadata of the three families. `divisors` are those of the
/// model's rope_freqs.weight, or none; they must be what "llama3" scaling gives. Errors say what cannot be expressed.
Expected<Json> config_of(const GgufFile& metadata, bool tied_head, bool qkv_bias, std::span<const float> divisors);

}  // namespace octalane
