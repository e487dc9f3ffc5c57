// What is wrong with a folder is said in one line that names the file and the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "model/tokenizer.h"

namespace octalane {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// A copy of a golden folder that may be damaged.
class DamagedFolder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / ("octalane_folder_" + std::to_string(::getpid()));
    fs::remove_all(path_);
    fs::copy(std::string(OCTALANE_TEST_DATA) + "/checkpoint/golden/llama", path_);
    fs::permissions(path_, fs::perms::owner_all);
    for (const auto& file : fs::directory_iterator(path_)) fs::permissions(file, fs::perms::owner_all);
  }
  void TearDown() override { fs::remove_all(path_); }

  void edit(const std::string& file, const std::function<void(json&)>& change) {
    std::ifstream in(path_ / file);
    json value = json::parse(in);
    in.close();
    change(value);
    std::ofstream(path_ / file) << value;
  }
  void write(const std::string& file, const std::string& text) { std::ofstream(path_ / file) << text; }

  /// The error of opening, or of making a model and a tokenizer of it.
  std::string error() {
    const Expected<Checkpoint> checkpoint = Checkpoint::open(path_);
    if (!checkpoint) return checkpoint.error().message;
    const Expected<Tokenizer> tokenizer = Tokenizer::load(*checkpoint);
    if (!tokenizer) return tokenizer.error().message;
    Context context = *Context::create({.threads = 1});
    const Expected<Model> model = Model::load(context, *checkpoint);
    return model ? "" : model.error().message;
  }

  fs::path path_;
};

TEST_F(DamagedFolder, undamaged_it_is_a_model) { EXPECT_EQ(error(), ""); }

TEST_F(DamagedFolder, config_must_be_an_object) {
  write("config.json", "[1, 2]");
  EXPECT_THAT(error(), HasSubstr("config.json: wanted a JSON object, got array"));
  write("config.json", "{\"model_type\": ");
  EXPECT_THAT(error(), HasSubstr("config.json: wanted JSON"));
  write("config.json", std::string(100000, '['));
  EXPECT_THAT(error(), HasSubstr("config.json: wanted JSON"));
}

TEST_F(DamagedFolder, config_must_be_of_a_known_kind) {
  edit("config.json", [](json& c) { c["model_type"] = "gpt_neox"; });
  EXPECT_THAT(error(), HasSubstr("config.json: model_type: wanted llama, qwen2 or qwen3, got \"gpt_neox\""));
  edit("config.json", [](json& c) { c["model_type"] = "llama", c["hidden_act"] = "gelu"; });
  EXPECT_THAT(error(), HasSubstr("hidden_act: wanted silu, got \"gelu\""));
  edit("config.json", [](json& c) {
    c.erase("hidden_act"), c["layer_types"] = {"full_attention", "sliding_attention"};
  });
  EXPECT_THAT(error(), HasSubstr("layer_types"));
}

TEST_F(DamagedFolder, config_must_have_sizes) {
  edit("config.json", [](json& c) { c.erase("hidden_size"); });
  EXPECT_THAT(error(), HasSubstr("hidden_size: wanted a whole number"));
  edit("config.json", [](json& c) { c["hidden_size"] = -128; });
  EXPECT_THAT(error(), HasSubstr("hidden_size: wanted a whole number"));
  edit("config.json", [](json& c) { c["hidden_size"] = 64; });
  EXPECT_THAT(error(), HasSubstr("wanted"));
  edit("config.json", [](json& c) { c["hidden_size"] = 128, c["rms_norm_eps"] = "small"; });
  EXPECT_THAT(error(), HasSubstr("rms_norm_eps: wanted a number"));
}

TEST_F(DamagedFolder, rope_scaling_must_be_known) {
  edit("config.json", [](json& c) { c["rope_scaling"]["rope_type"] = "longrope"; });
  EXPECT_THAT(error(), HasSubstr("rope_scaling: wanted default, linear, llama3 or yarn, got \"longrope\""));
  edit("config.json", [](json& c) { c["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 0}}; });
  EXPECT_THAT(error(), HasSubstr("rope_scaling"));
}

TEST_F(DamagedFolder, quantization_must_fit_the_weights) {
  edit("config.json", [](json& c) { c["quantization"]["model.layers.0.self_attn.q_proj"]["bits"] = 4; });
  EXPECT_THAT(error(), HasSubstr("q_proj.scales"));
  edit("config.json", [](json& c) { c["quantization"]["model.layers.0.self_attn.q_proj"]["bits"] = 1; });
  EXPECT_THAT(error(), HasSubstr("q_proj"));
  edit("config.json", [](json& c) { c.erase("quantization"), c.erase("quantization_config"); });
  EXPECT_THAT(error(), HasSubstr("config.json does not say how"));
}

TEST_F(DamagedFolder, modes_must_be_known_and_have_their_own_groups_and_bits) {
  const auto layer = [&](const json& said) {
    edit("config.json", [&](json& c) { c["quantization"]["model.layers.0.self_attn.q_proj"] = said; });
    return error();
  };
  EXPECT_THAT(layer({{"mode", "nvfp4-scaled"}, {"group_size", 32}, {"bits", 2}}), HasSubstr("mode \"nvfp4-scaled\""));
  EXPECT_THAT(layer({{"mode", "mxfp8"}, {"group_size", 32}, {"bits", 4}}), HasSubstr("mode mxfp8 with groups or bits"));
  EXPECT_THAT(layer({{"mode", "mxfp4"}, {"group_size", 32}, {"bits", 2}}), HasSubstr("mode mxfp4 with groups or bits"));
  EXPECT_THAT(layer({{"mode", 5}, {"group_size", 32}, {"bits", 2}}), HasSubstr("mode that is no text"));
  EXPECT_THAT(layer({{"mode", "mxfp4"}}), HasSubstr("q_proj"));  // half the columns for these words
  EXPECT_THAT(layer(false), HasSubstr("says it is not"));
  EXPECT_THAT(layer("x"), HasSubstr("says it is not"));
  edit("config.json", [](json& c) { c.erase("quantization"), c["quantization_config"]["quant_method"] = "awq"; });
  EXPECT_THAT(error(), HasSubstr("quantized by \"awq\""));
}

TEST_F(DamagedFolder, values_of_another_type_are_not_taken_for_absent_ones) {
  const std::vector<std::pair<std::string, json>> wrong{{"hidden_act", 5},
                                                        {"tie_word_embeddings", "x"},
                                                        {"rope_theta", "10000"},
                                                        {"use_sliding_window", 1},
                                                        {"rope_scaling", json::array()},
                                                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", "4"}}},
                                                        {"rope_scaling", {{"rope_type", "linear"}}},
                                                        {"rope_scaling", {{"rope_type", 5}, {"factor", 2}}},
                                                        {"rope_scaling", {{"factor", 4}}}};
  for (const auto& each : wrong) {
    json before;
    edit("config.json", [&](json& c) { before = c, c[each.first] = each.second; });
    EXPECT_THAT(error(), HasSubstr("config.json: " + each.first)) << each.second;
    edit("config.json", [&](json& c) { c = before; });
  }
}

TEST_F(DamagedFolder, tokenizer_must_be_byte_level_bpe) {
  edit("tokenizer.json", [](json& t) { t["model"]["type"] = "Unigram"; });
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: model: wanted byte-level BPE"));
  edit("tokenizer.json", [](json& t) { t["model"]["type"] = "BPE", t["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: pre_tokenizer: wanted the steps of"));
}

TEST_F(DamagedFolder, tokenizer_must_have_sound_tokens) {
  edit("tokenizer.json", [](json& t) { t["added_tokens"][0]["id"] = 5; });
  EXPECT_THAT(error(), HasSubstr("id 5: wanted one token"));
  edit("tokenizer.json", [](json& t) { t["added_tokens"][0]["id"] = uint64_t{1} << 40; });
  EXPECT_THAT(error(), HasSubstr("wanted an id below"));
  edit("tokenizer.json", [](json& t) { t["added_tokens"][0]["id"] = 0, t["model"]["merges"] = {{"a"}}; });
  EXPECT_THAT(error(), HasSubstr("model.merges"));
  edit("tokenizer.json", [](json& t) { t["model"]["merges"] = json::array(), t["model"]["vocab"] = 7; });
  EXPECT_THAT(error(), HasSubstr("model.vocab"));
}

TEST_F(DamagedFolder, weights_can_be_listed_whatever_the_model_is) {
  edit("config.json", [](json& c) { c["model_type"] = "gpt_neox"; });
  const Expected<Checkpoint> checkpoint = Checkpoint::open(path_);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_NE(checkpoint->find("model.layers.0.self_attn.q_proj"), nullptr);
  EXPECT_FALSE(checkpoint->model_status());
}

}  // namespace
}  // namespace octalane
