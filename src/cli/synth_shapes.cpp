#include "cli/synth_shapes.h"

#include <array>

namespace octalane::cli {
namespace {

// From the config.json that each model's makers publish; the tiny ones are for tests.
constexpr std::array kShapes = std::to_array<SynthShape>({
    {"smollm2-135m", "llama", "smollm", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, true},
    {"llama-3.2-1b", "llama", "llama-bpe", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, 1e-5, true, false, false,
     32},
    {"llama-3.1-8b", "llama", "llama-bpe", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, false, false, false,
     8},
    {"qwen2.5-0.5b", "qwen2", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, 1e-6, true, true},
    {"qwen2.5-7b", "qwen2", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, 1e6, 1e-6, false, true},
    {"qwen3-0.6b", "qwen3", "qwen2", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, 1e-6, true, false, true},
    {"qwen3-8b", "qwen3", "qwen2", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, 1e-6, false, false, true},
    {"tiny-llama", "llama", "llama-bpe", 2, 256, 512, 4, 2, 64, 320, 512, 1e4, 1e-5, false, false, false, 8},
    {"tiny-qwen2", "qwen2", "qwen2", 2, 96, 160, 3, 1, 32, 320, 512, 1e6, 1e-6, true, true},
    {"tiny-qwen3", "qwen3", "qwen2", 2, 256, 512, 4, 2, 32, 320, 512, 1e6, 1e-6, true, false, true},
});

}  // namespace

std::span<const SynthShape> synth_shapes() { return kShapes; }

const SynthShape* find_synth_shape(std::string_view name) {
  for (const SynthShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

}  // namespace octalane::cli
