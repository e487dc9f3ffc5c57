// Tiny models and texts for the gate's tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gate/judge.h"
#include "model/tiny_model.h"

namespace octalane::gate_test {

/// A file of this content, gone with its owner.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes, const std::string& suffix = ".json") {
    static int count = 0;
    path_ = testing::TempDir() + "octalane_gate_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + suffix;
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Context stock_context() {
  Expected<Context> context = Context::create({.threads = 1, .isa = {}, .lane = StagedType::bf16});
  EXPECT_TRUE(context) << context.error().message;
  return std::move(*context);
}

inline Model load(Context& context, const Checkpoint& file) {
  Expected<Model> model = Model::load(context, file);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(*model);
}

/// A tiny model whose matrices have 4-bit codes, which every int8 lane can serve, instead of 8-bit ones: the codes and
/// the scale of 2^-9 become codes of four bits and 2^-5 (format 2: a half and 16 bytes for 32 values).
inline tiny::Recipe four_bit_recipe() {
  tiny::Recipe recipe = tiny::recipe(tiny::variant("llama_untied"));
  for (tiny::Tensor& tensor : recipe.tensors) {
    if (tensor.ggml_type != tiny::kQ8_0 || tensor.name == "token_embd.weight") continue;
    std::vector<std::byte> bytes;
    for (size_t at = 0; at < tensor.bytes.size(); at += 34) {
      uint16_t scale = 0;
      std::memcpy(&scale, tensor.bytes.data() + at, 2);
      scale = static_cast<uint16_t>(scale + (4 << 10));  // times 16
      bytes.resize(bytes.size() + 2);
      std::memcpy(bytes.data() + bytes.size() - 2, &scale, 2);
      const auto code = [&](size_t i) {
        return (static_cast<int>(static_cast<int8_t>(tensor.bytes[at + 2 + i])) >> 4) + 8;
      };
      for (size_t i = 0; i < 16; ++i) bytes.push_back(static_cast<std::byte>(code(i) | code(i + 16) << 4));
    }
    tensor.ggml_type = 2;
    tensor.bytes = std::move(bytes);
  }
  return recipe;
}

/// One channel of what goes into attention and feed-forward a thousand times the others, and weights that do not look
/// at it: the exact result hardly changes, but the channel sets the scale of whatever is quantized together with it.
inline tiny::Recipe outlier_recipe() {
  constexpr size_t kChannel = 20;
  tiny::Recipe recipe = four_bit_recipe();
  for (tiny::Tensor& tensor : recipe.tensors) {
    const auto ends = [&](const char* name) { return tensor.name.ends_with(name); };
    if (ends("attn_norm.weight") || ends("ffn_norm.weight")) {
      float weight = 0;
      std::byte* at = tensor.bytes.data() + kChannel * sizeof weight;
      std::memcpy(&weight, at, sizeof weight);
      weight *= 1000;
      std::memcpy(at, &weight, sizeof weight);
    }
    if (ends("attn_q.weight") || ends("attn_k.weight") || ends("attn_v.weight") || ends("ffn_gate.weight") ||
        ends("ffn_up.weight")) {
      const size_t row_bytes = static_cast<size_t>(tiny::kEmbedding) / 32 * 18;
      for (size_t row = 0; row < tensor.bytes.size(); row += row_bytes) {
        std::byte& codes = tensor.bytes[row + 2 + kChannel - 16];  // of columns 4 and 20
        codes = (codes & std::byte{0x0F}) | std::byte{0x80};       // level 0
      }
    }
  }
  return recipe;
}

/// A text of the tiny vocabulary's tokens.
inline Text text(int64_t count) { return {"text", "hash", tiny::tokens(count)}; }

inline bool go_on(int64_t, int64_t) { return true; }

}  // namespace octalane::gate_test
