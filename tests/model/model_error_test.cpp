// Files and calls that are wrong: one line that names the key or tensor, what was wanted and what was found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/model.h"
#include "tiny_model.h"

namespace octalane {
namespace {

using testing::HasSubstr;
using tiny::Recipe;

Context make_context() {
  Expected<Context> context = Context::create({.threads = 2, .isa = "", .lane = {}});
  EXPECT_TRUE(context);
  return std::move(*context);
}

Recipe base(const char* variant = "llama_tied") { return tiny::recipe(tiny::variant(variant)); }

std::string load_error(const Recipe& recipe) {
  const Expected<GgufFile> file = recipe.open();
  if (!file) return "file: " + file.error().message;
  Context context = make_context();
  const Expected<Model> model = Model::load(context, *file);
  if (model) return "none";
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  return model.error().message;
}

std::string with_key(const std::string& name, GgufType type, GgufScalar value, const char* variant = "llama_tied") {
  Recipe recipe = base(variant);
  recipe.set(name, type, value);
  return load_error(recipe);
}

TEST(ModelErrors, AWholeRecipeHasNone) { EXPECT_EQ(load_error(base()), "none"); }

TEST(ModelErrors, UnknownArchitecturesAndExpertsAreRefusedByName) {
  Recipe recipe = base();
  recipe.set_full("general.architecture", GgufType::string, std::string_view("mamba"));
  EXPECT_THAT(load_error(recipe), HasSubstr("general.architecture: wanted one of llama, qwen2, qwen3, got \"mamba\""));
  recipe.remove_key("general.architecture");
  EXPECT_THAT(load_error(recipe), HasSubstr("general.architecture"));
  EXPECT_THAT(with_key("expert_count", GgufType::u32, uint64_t{8}), HasSubstr("llama.expert_count: wanted 0"));
  EXPECT_EQ(with_key("expert_count", GgufType::u32, uint64_t{0}), "none");
  EXPECT_THAT(with_key("rope.scaling.type", GgufType::string, std::string_view("longrope")),
              HasSubstr("llama.rope.scaling.type: wanted none, linear or yarn, got \"longrope\""));
}

TEST(ModelErrors, EveryRequiredKeyIsMissedByName) {
  for (const char* key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    Recipe recipe = base();
    recipe.remove_key(key);
    EXPECT_EQ(load_error(recipe), std::string("llama.") + key + ": the key is missing");
  }
}

TEST(ModelErrors, AbsurdSizesAreRefusedByName) {
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "vocab_size", "rope.dimension_count"}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{0xFFFFFFFF}, uint64_t{1} << 63}) {
      const std::string error = with_key(key, GgufType::u64, value);
      EXPECT_THAT(error, HasSubstr(std::string("llama.") + key)) << value;
    }
  }
  EXPECT_THAT(with_key("block_count", GgufType::u32, uint64_t{1000000}), HasSubstr("blk.2.attn_norm.weight"));
  EXPECT_THAT(with_key("block_count", GgufType::string, std::string_view("two")), HasSubstr("llama.block_count"));
  EXPECT_THAT(with_key("attention.head_count", GgufType::u32, uint64_t{3}), HasSubstr("llama.attention.head_count"));
  EXPECT_THAT(with_key("attention.head_count_kv", GgufType::u32, uint64_t{3}),
              HasSubstr("llama.attention.head_count_kv: wanted a divisor of 4 heads, got 3"));
  EXPECT_THAT(with_key("attention.value_length", GgufType::u32, uint64_t{8}),
              HasSubstr("llama.attention.value_length: wanted the key length 16, got 8"));
  EXPECT_THAT(with_key("rope.dimension_count", GgufType::u32, uint64_t{7}),
              HasSubstr("llama.rope.dimension_count: wanted an even number, got 7"));
  EXPECT_THAT(with_key("rope.dimension_count", GgufType::u32, uint64_t{18}),
              HasSubstr("llama.rope.dimension_count: wanted 1 to 16, got 18"));
}

TEST(ModelErrors, AbsurdNumbersAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor",
                          "rope.scaling.attn_factor", "attention.scale"}) {
    for (const double value : {nan, infinite, -1.0}) {
      EXPECT_THAT(with_key(key, GgufType::f32, value), HasSubstr(std::string("llama.") + key)) << value;
    }
  }
  EXPECT_THAT(with_key("rope.freq_base", GgufType::f32, 1.0, "qwen2_yarn"),
              HasSubstr("qwen2.rope.freq_base: wanted more than 1, got 1"));
  EXPECT_THAT(with_key("rope.scaling.original_context_length", GgufType::u32, uint64_t{0}, "qwen2_yarn"),
              HasSubstr("qwen2.rope.scaling.original_context_length"));
}

TEST(ModelErrors, EveryMissingTensorIsNamed) {
  for (const char* variant : {"llama_untied", "qwen2", "qwen3"}) {
    const Recipe whole = base(variant);
    for (const tiny::Tensor& tensor : whole.tensors) {
      Recipe recipe = whole;
      recipe.remove_tensor(tensor.name);
      const std::string error = load_error(recipe);
      const bool optional = tensor.name.ends_with(".bias") || tensor.name == "output.weight";
      EXPECT_EQ(error, optional ? "none" : tensor.name + ": the tensor is missing") << variant;
    }
  }
}

TEST(ModelErrors, AWrongShapeIsNamedWithBothShapes) {
  Recipe recipe = base();
  tiny::Tensor& down = recipe.tensor("blk.1.ffn_down.weight");
  std::swap(down.shape[0], down.shape[1]);
  EXPECT_EQ(load_error(recipe), "blk.1.ffn_down.weight: wanted 96 x 64, got 64 x 96");
  for (const tiny::Tensor& tensor : base("qwen2").tensors) {
    Recipe wrong = base("qwen2");
    wrong.remove_tensor(tensor.name);
    wrong.remove_key("vocab_size");
    if (tensor.name.ends_with(".bias") || tensor.shape.size() == 1) {
      wrong.add_vector(tensor.name, tensor.shape[0] + 1);
    } else {
      wrong.add_matrix(tensor.name, tensor.shape[1], tensor.shape[0] + 32);
    }
    EXPECT_THAT(load_error(wrong), HasSubstr(tensor.name + ": wanted ")) << tensor.name;
  }
  recipe = base();
  recipe.set("vocab_size", GgufType::u32, uint64_t{301});
  EXPECT_EQ(load_error(recipe), "token_embd.weight: wanted 64 x 301, got 64 x 300");
}

TEST(ModelErrors, ATensorThatTheArchitectureDoesNotKnowIsNamed) {
  Recipe recipe = base();
  recipe.add_vector("blk.0.attn_sinks.weight", 4);
  EXPECT_EQ(load_error(recipe), "blk.0.attn_sinks.weight: not a tensor of the llama architecture");
  recipe = base("qwen2");
  recipe.add_vector("blk.0.attn_q_norm.weight", 16);
  EXPECT_EQ(load_error(recipe), "blk.0.attn_q_norm.weight: not a tensor of the qwen2 architecture");
}

TEST(ModelErrors, AnUnsupportedTensorTypeIsNamed) {
  Recipe recipe = base();
  tiny::Tensor& tensor = recipe.tensor("blk.0.attn_norm.weight");
  tensor.ggml_type = 24;  // i8
  tensor.bytes.resize(static_cast<size_t>(tiny::kEmbedding));
  EXPECT_EQ(load_error(recipe), "blk.0.attn_norm.weight: weights of type i8 are not supported");
}

TEST(ModelErrors, BadRopeDivisorsAreRefused) {
  Recipe recipe = base("llama_rope_freqs");
  tiny::Tensor& tensor = recipe.tensor("rope_freqs.weight");
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
  EXPECT_EQ(load_error(recipe), "rope_freqs.weight: wanted finite numbers > 0, got 0");
}

class ForwardErrors : public testing::Test {
 protected:
  ForwardErrors() : context_(make_context()), file_(base().open()), model_(Model::load(context_, *file_)) {}

  KvCache cache(int64_t capacity) const {
    Expected<KvCache> made = KvCache::create(model_->config(), capacity);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  std::string error(std::span<const int32_t> tokens, KvCache& cache, int64_t rows, int64_t cols) {
    std::vector<float> logits(static_cast<size_t>(rows * cols));
    const int64_t before = cache.size();
    const Status done = model_->forward(context_, tokens, cache, dense_view(logits.data(), rows, cols));
    if (done) return "none";
    EXPECT_EQ(cache.size(), before);
    return done.error().message;
  }

  Context context_;
  Expected<GgufFile> file_;
  Expected<Model> model_;
};

TEST_F(ForwardErrors, AFullCacheSaysHowFull) {
  KvCache kv = cache(5);
  const std::vector<int32_t> tokens = tiny::tokens(4);
  EXPECT_EQ(error(tokens, kv, 1, tiny::kVocabulary), "none");
  EXPECT_EQ(error(tokens, kv, 1, tiny::kVocabulary),
            "KV cache: wanted room for 4 more positions, got 1 (4 of 5 are used)");
  EXPECT_EQ(error(std::span(tokens).first(1), kv, 1, tiny::kVocabulary), "none");
  EXPECT_EQ(kv.size(), 5);
}

TEST_F(ForwardErrors, TokensOutsideTheVocabularyAreNamed) {
  KvCache kv = cache(5);
  EXPECT_EQ(error(std::vector<int32_t>{0, 299, 300}, kv, 1, tiny::kVocabulary), "token 2: wanted 0 to 299, got 300");
  EXPECT_EQ(error(std::vector<int32_t>{-1}, kv, 1, tiny::kVocabulary), "token 0: wanted 0 to 299, got -1");
}

TEST_F(ForwardErrors, LogitsOfAWrongShapeAreRefused) {
  KvCache kv = cache(5);
  const std::vector<int32_t> tokens = tiny::tokens(2);
  EXPECT_THAT(error(tokens, kv, 3, tiny::kVocabulary), HasSubstr("logits: wanted at most 2 rows x 300"));
  EXPECT_THAT(error(tokens, kv, 1, tiny::kVocabulary - 1), HasSubstr("logits: wanted"));
  EXPECT_EQ(error({}, kv, 0, 0), "none");
}

TEST_F(ForwardErrors, ACacheOfAnotherModelIsRefused) {
  ModelConfig other = model_->config();
  other.layers = 1;
  Expected<KvCache> kv = KvCache::create(other, 5);
  ASSERT_TRUE(kv);
  EXPECT_EQ(error(tiny::tokens(1), *kv, 1, tiny::kVocabulary),
            "KV cache: wanted 2 layers x 2 heads x 16, got 1 x 2 x 16");
}

TEST_F(ForwardErrors, ACacheThatCannotBeIsRefused) {
  const Expected<KvCache> none = KvCache::create(model_->config(), 0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "KV cache: wanted room for at least 1 position, got 0");
  const Expected<KvCache> huge = KvCache::create(model_->config(), int64_t{1} << 60);
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, HasSubstr("more than there is"));
}

}  // namespace
}  // namespace octalane
