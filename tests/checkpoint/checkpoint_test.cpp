// Folders that mlx-lm wrote, against what mlx and the tokenizers library say of them (record_folders.py).
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files/npy.h"
#include "files/safetensors.h"
#include "model/model.h"
#include "model/tokenizer.h"

namespace octalane {
namespace {

std::string golden(const std::string& name) { return std::string(OCTALANE_TEST_DATA) + "/checkpoint/golden/" + name; }

Checkpoint open(const std::string& name) {
  Expected<Checkpoint> opened = Checkpoint::open(golden(name));
  EXPECT_TRUE(opened) << opened.error().message;
  return *opened;
}

class Folder : public testing::TestWithParam<const char*> {
 protected:
  nlohmann::json texts() const {
    std::ifstream file(golden(GetParam()) + "/tokens.json");
    return nlohmann::json::parse(file);
  }
};

TEST_P(Folder, tokens_are_those_of_the_tokenizers_library) {
  const Expected<Tokenizer> tokenizer = Tokenizer::load(open(GetParam()));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const auto& each : texts()) {
    const std::vector<int32_t> tokens =
        tokenizer->encode(each["text"].get<std::string>(), {.add_special = true, .parse_special = true});
    EXPECT_EQ(tokens, each["tokens"].get<std::vector<int32_t>>()) << each["text"];
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->eos(), true), "<|im_end|>");
  EXPECT_TRUE(tokenizer->ends_generation(tokenizer->eos()));
}

/// Mean KL divergence in nats of softmax(got) from softmax(wanted), over all rows.
double mean_kld(MatrixView<const float> wanted, MatrixView<const float> got) {
  const auto log_sum = [](const float* row, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(double{row[i]});
    return std::log(sum);
  };
  double kld = 0;
  for (int64_t r = 0; r < wanted.rows; ++r) {
    const double p0 = log_sum(wanted.row(r), wanted.cols), q0 = log_sum(got.row(r), wanted.cols);
    for (int64_t i = 0; i < wanted.cols; ++i) {
      const double p = double{wanted(r, i)} - p0, q = double{got(r, i)} - q0;
      kld += std::exp(p) * (p - q) / static_cast<double>(wanted.rows);
    }
  }
  return kld;
}

TEST_P(Folder, logits_are_those_of_mlx) {
  const Checkpoint checkpoint = open(GetParam());
  Context context = *Context::create({.threads = 2});
  const Expected<Model> model = Model::load(context, checkpoint);
  ASSERT_TRUE(model) << model.error().message;
  const auto tokens = texts()[0]["tokens"].get<std::vector<int32_t>>();
  const Matrix wanted = *read_npy(golden(GetParam()) + "/logits.npy");
  ASSERT_EQ(wanted.rows, static_cast<int64_t>(tokens.size()));
  ASSERT_EQ(wanted.cols, model->config().vocabulary);
  KvCache cache = *KvCache::create(model->config(), 64);
  Matrix got{std::vector<float>(wanted.values.size()), wanted.rows, wanted.cols};
  ASSERT_TRUE(model->forward(context, tokens, cache, got.view()));
  // bfloat16 operands against fp32: about 1e-5 here; one layer read wrongly gives 1e-2 and more.
  EXPECT_LT(mean_kld(wanted.view(), std::as_const(got).view()), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Golden, Folder, testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& each) { return each.param; });

TEST(Checkpoint, lists_layers_under_their_module_paths) {
  const Checkpoint checkpoint = open("llama");
  EXPECT_EQ(checkpoint.container(), "safetensors");
  const CheckpointTensor* q = checkpoint.find("model.layers.0.self_attn.q_proj");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->type, "mlx-affine-2-g32");
  EXPECT_EQ(q->role, "blk.0.attn_q.weight");
  EXPECT_THAT(q->shape, testing::ElementsAre(128, 128));
  EXPECT_EQ(q->bytes, 128u * (128 / 4 + 128 / 32 * 4));
  EXPECT_EQ(checkpoint.find_role("blk.0.attn_q.weight"), q);
  EXPECT_EQ(checkpoint.find("model.layers.0.self_attn.q_proj.scales"), nullptr);
  EXPECT_EQ(checkpoint.find_role("token_embd.weight")->type, "mlx-affine-8-g32");
  EXPECT_EQ(checkpoint.find_role("output_norm.weight")->type, "bf16");
  EXPECT_EQ(open("qwen2").find_role("blk.0.attn_k.weight")->type, "mlx-nvfp4");
  EXPECT_EQ(open("qwen2").find_role("blk.0.attn_k.bias")->name, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(open("qwen3").find_role("blk.0.attn_output.weight")->name, "model.layers.0.self_attn.o_proj.weight");
}

TEST(Checkpoint, rope_scaling_of_a_folder_is_the_tensor_that_gguf_has) {
  const Checkpoint checkpoint = open("llama");
  const CheckpointTensor* divisors = checkpoint.find_role("rope_freqs.weight");
  ASSERT_NE(divisors, nullptr);
  EXPECT_THAT(divisors->shape, testing::ElementsAre(16));
  EXPECT_EQ(open("qwen2").find_role("rope_freqs.weight"), nullptr);
}

/// Row 0 of a 1 x 16 layer in mode nvfp4 whose matrix has a scale of its own, codes 0 to 15 under an E4M3 scale of 1.5.
std::vector<float> scaled_nvfp4(const std::string& scale_name, float scale) {
  const std::string folder = testing::TempDir() + "/octalane_nvfp4_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  SafetensorsWriter writer = *SafetensorsWriter::create(folder);
  const std::array<int64_t, 2> words{1, 2}, scales{1, 1};
  EXPECT_TRUE(writer.add_tensor("a.weight", "U32", words) && writer.add_tensor("a.scales", "U8", scales) &&
              writer.add_tensor("a." + scale_name, "F32", {}));
  const std::array<uint8_t, 9> bytes{0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0x3C};
  EXPECT_TRUE(writer.write_tensor(std::as_bytes(std::span(bytes).first(8))) &&
              writer.write_tensor(std::as_bytes(std::span(bytes).last(1))) &&
              writer.write_tensor(std::as_bytes(std::span(&scale, 1))) && writer.finish());
  std::ofstream(folder + "/config.json") << R"({"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}})";
  const Expected<Checkpoint> checkpoint = Checkpoint::open(folder);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  const CheckpointTensor& tensor = *checkpoint->find("a");
  EXPECT_EQ(tensor.type, "mlx-nvfp4-scaled");
  const Planes planes(tensor.format->spec, 1, 16);
  tensor.matrix().to_planes(0, planes.row(0));
  std::vector<float> out(16);
  decode_row(tensor.format->spec, planes.row(0), 16, out.data());
  return out;
}

TEST(Checkpoint, a_scale_of_the_matrix_may_be_spelt_as_mlx_or_as_modelopt_does) {
  const std::vector<float> e2m1{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const float amax = 0.37f, factor = amax / 2688.0f;
  std::vector<float> wanted;
  for (const float value : e2m1) wanted.push_back(value * (1.5f * factor));
  EXPECT_EQ(scaled_nvfp4("global_scale", amax), wanted);
  EXPECT_EQ(scaled_nvfp4("weight_scale_2", factor), wanted);
}

TEST(Checkpoint, a_lone_safetensors_file_uses_the_config_beside_it) {
  const Expected<Checkpoint> file = Checkpoint::open(golden("qwen2") + "/model.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("model.layers.0.self_attn.q_proj")->type, "mlx-mxfp4");
}

}  // namespace
}  // namespace octalane
