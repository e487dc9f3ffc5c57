#include "tiny_model.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace octalane::tiny {
namespace {

uint64_t mix(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

std::vector<uint64_t> words(const std::string& name, int64_t count) {
  uint64_t seed = 0xCBF29CE484222325u;
  for (const char byte : name) seed = (seed ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  std::vector<uint64_t> out;
  for (int64_t i = 1; i <= count; ++i) out.push_back(mix(seed + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u));
  return out;
}

std::vector<int> codes(const std::string& name, int64_t count) {
  std::vector<int> out;
  for (const uint64_t word : words(name, count)) out.push_back(static_cast<int>(word >> 56) - 128);
  return out;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

const std::vector<std::string> kQkv = {"attn_q", "attn_k", "attn_v"};

std::vector<Variant> make_variants() {
  const std::vector<Key> linear = {{"rope.scaling.type", GgufType::string, std::string_view("linear")},
                                   {"rope.scaling.factor", GgufType::f32, 4.0}};
  const std::vector<Key> yarn = {{"rope.scaling.type", GgufType::string, std::string_view("yarn")},
                                 {"rope.scaling.factor", GgufType::f32, 4.0},
                                 {"rope.scaling.original_context_length", GgufType::u32, uint64_t{512}}};
  const std::vector<Key> partial = {{"rope.dimension_count", GgufType::u32, uint64_t{8}}};
  const std::vector<Key> scale = {{"attention.scale", GgufType::f32, 0.5}};
  std::vector<std::string> all = kQkv;
  all.insert(all.end(), {"attn_output", "ffn_gate", "ffn_up", "ffn_down"});
  return {
      {.name = "llama_tied", .architecture = "llama"},
      {.name = "llama_untied", .architecture = "llama", .tied = false},
      {.name = "llama_rope_freqs", .architecture = "llama", .divisors = true},
      {.name = "llama_linear", .architecture = "llama", .keys = linear},
      {.name = "llama_biases", .architecture = "llama", .biases = all},
      {.name = "qwen2", .architecture = "qwen2", .biases = kQkv},
      {.name = "qwen2_yarn", .architecture = "qwen2", .biases = kQkv, .keys = yarn},
      {.name = "qwen3", .architecture = "qwen3", .head_dim = 32, .tied = false},
      {.name = "llama_partial_rotary", .architecture = "llama", .keys = partial, .llama_cpp = false},
      {.name = "qwen2_partial_rotary", .architecture = "qwen2", .biases = kQkv, .keys = partial, .llama_cpp = false},
      {.name = "llama_attention_scale", .architecture = "llama", .keys = scale, .llama_cpp = false},
  };
}

void add_layer(Recipe& out, const Variant& v, int64_t layer) {
  const int64_t q = 4 * v.head_dim, kv = 2 * v.head_dim;
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  out.add_vector(prefix + "attn_norm.weight", kEmbedding);
  out.add_vector(prefix + "ffn_norm.weight", kEmbedding);
  if (v.architecture == "qwen3") {
    out.add_vector(prefix + "attn_q_norm.weight", v.head_dim);
    out.add_vector(prefix + "attn_k_norm.weight", v.head_dim);
  }
  struct Part {
    const char* name;
    int64_t rows, cols;
  };
  for (const Part& part :
       {Part{"attn_q", q, kEmbedding}, Part{"attn_k", kv, kEmbedding}, Part{"attn_v", kv, kEmbedding},
        Part{"attn_output", kEmbedding, q}, Part{"ffn_gate", kFeedForward, kEmbedding},
        Part{"ffn_up", kFeedForward, kEmbedding}, Part{"ffn_down", kEmbedding, kFeedForward}}) {
    out.add_matrix(prefix + part.name + ".weight", part.rows, part.cols);
    if (std::ranges::find(v.biases, part.name) != v.biases.end()) {
      out.add_vector(prefix + part.name + ".bias", part.rows);
    }
  }
}

}  // namespace

void Recipe::set(const std::string& name, GgufType type, GgufScalar value) {
  set_full(architecture + "." + name, type, value);
}

void Recipe::set_full(const std::string& name, GgufType type, GgufScalar value) {
  remove_key(name);
  keys.push_back({name, type, value});
}

void Recipe::remove_key(const std::string& name) {
  std::erase_if(keys, [&](const Key& key) { return key.name == name || key.name == architecture + "." + name; });
}

void Recipe::remove_tensor(const std::string& name) {
  EXPECT_EQ(std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; }), 1u) << name;
}

Tensor& Recipe::tensor(const std::string& name) {
  return *std::ranges::find_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

void Recipe::add_vector(const std::string& name, int64_t size) {
  Tensor out{name, kF32, {size}, {}};
  for (const int code : codes(name, size)) {
    float value = 1.0f + static_cast<float>(code) / 512.0f;
    if (name.ends_with(".bias")) value = static_cast<float>(code) / 256.0f;
    if (name == "rope_freqs.weight") value = 1.0f + static_cast<float>(code + 128) * 7.0f / 256.0f;
    append(out.bytes, value);
  }
  tensors.push_back(std::move(out));
}

void Recipe::add_matrix(const std::string& name, int64_t rows, int64_t cols) {
  Tensor out{name, kQ8_0, {cols, rows}, {}};
  const bool outer = name == "token_embd.weight" || name == "output.weight";
  const uint16_t scale = outer ? 0x1C00 : 0x1800;  // 2^-8, 2^-9 as halves
  int64_t i = 0;
  for (const int code : codes(name, rows * cols)) {
    if (i++ % 32 == 0) append(out.bytes, scale);
    append(out.bytes, static_cast<int8_t>(code));
  }
  tensors.push_back(std::move(out));
}

Expected<GgufFile> Recipe::open() const {
  static int count = 0;
  const std::string path =
      testing::TempDir() + "octalane_tiny_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".gguf";
  Expected<GgufWriter> writer = GgufWriter::create(path);
  if (!writer) return fail_with(writer);
  for (const Key& key : keys) writer->set(key.name, key.type, key.value);
  for (const Tensor& tensor : tensors) {
    if (const Status added = writer->add_tensor(tensor.name, tensor.ggml_type, tensor.shape); !added) {
      return fail_with(added);
    }
  }
  for (const Tensor& tensor : tensors) {
    if (const Status written = writer->write_tensor(tensor.bytes); !written) return fail_with(written);
  }
  if (const Status finished = writer->finish(); !finished) return fail_with(finished);
  Expected<GgufFile> file = GgufFile::open(path);
  std::filesystem::remove(path);
  return file;
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = make_variants();
  return all;
}

const Variant& variant(const std::string& name) {
  return *std::ranges::find_if(variants(), [&](const Variant& v) { return v.name == name; });
}

Recipe recipe(const Variant& v) {
  Recipe out{v.architecture, {}, {}};
  const auto size = [&](const char* name, int64_t value) {
    out.set(name, GgufType::u32, static_cast<uint64_t>(value));
  };
  out.set_full("general.architecture", GgufType::string, std::string_view(v.architecture));
  size("context_length", 256);
  size("embedding_length", kEmbedding);
  size("block_count", kLayers);
  size("feed_forward_length", kFeedForward);
  size("attention.head_count", 4);
  size("attention.head_count_kv", 2);
  size("vocab_size", kVocabulary);
  out.set("attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5);
  out.set("rope.freq_base", GgufType::f32, 10000.0);
  if (v.head_dim * 4 != kEmbedding) {
    size("attention.key_length", v.head_dim);
    size("attention.value_length", v.head_dim);
  }
  for (const Key& key : v.keys) out.set(key.name, key.type, key.value);
  out.add_matrix("token_embd.weight", kVocabulary, kEmbedding);
  for (int64_t layer = 0; layer < kLayers; ++layer) add_layer(out, v, layer);
  out.add_vector("output_norm.weight", kEmbedding);
  if (!v.tied) out.add_matrix("output.weight", kVocabulary, kEmbedding);
  if (v.divisors) out.add_vector("rope_freqs.weight", v.head_dim / 2);
  return out;
}

std::vector<int32_t> tokens(int64_t count) {
  std::vector<int32_t> out;
  for (const uint64_t word : words("tokens", count)) out.push_back(static_cast<int32_t>(word % kVocabulary));
  return out;
}

std::vector<int64_t> recorded_positions() {
  std::vector<int64_t> out{0};
  for (int64_t position = 4; position < kTokens; position += 5) out.push_back(position);
  return out;
}

}  // namespace octalane::tiny
