#include "checkpoint/hf_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

namespace octalane {
namespace {

struct Name {
  std::string_view path, role;
};

constexpr std::array kModel = std::to_array<Name>({
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
});

constexpr std::array kLayer = std::to_array<Name>({
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
});

constexpr std::string_view kPathLayers = "model.layers.", kRoleLayers = "blk.";

/// Replaces one member of a Name by the other, between `from` of the layers and the last part (".weight", ".bias").
std::string translate(std::string_view name, std::string_view Name::*from, std::string_view Name::*to,
                      std::string_view from_layers, std::string_view to_layers) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view last = name.substr(dot);
  if (last != ".weight" && last != ".bias") return {};
  name = name.substr(0, dot);

  std::string out;
  std::span<const Name> names = kModel;
  if (name.starts_with(from_layers)) {
    name.remove_prefix(from_layers.size());
    const size_t digits = static_cast<size_t>(std::ranges::find_if_not(name, ::isdigit) - name.begin());
    if (digits == 0 || digits > 9 || digits == name.size() || name[digits] != '.') return {};
    if (digits > 1 && name[0] == '0') return {};
    out.append(to_layers).append(name.substr(0, digits + 1));
    name.remove_prefix(digits + 1);
    names = kLayer;
  }
  const auto found = std::ranges::find(names, name, from);
  if (found == names.end()) return {};
  return out.append((*found).*to).append(last);
}

}  // namespace

std::string role_of_path(std::string_view path) {
  return translate(path, &Name::path, &Name::role, kPathLayers, kRoleLayers);
}

std::string path_of_role(std::string_view role) {
  return translate(role, &Name::role, &Name::path, kRoleLayers, kPathLayers);
}

}  // namespace octalane
