// Model folders wherever a model is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "cli/tool.h"
#include "files/npy.h"

namespace octalane::cli_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A new folder with the weights of a tiny model in some format.
std::string folder_of(const std::string& like, const std::string& format, const std::string& from = "f32") {
  const std::string out = scratch() / ("folder-" + like + "-" + format);
  fs::remove_all(out);
  octalane_json({"quantize", tiny_model(like, from), out, "--format", format, "--container", "folder"});
  return out;
}

std::string logits_hash(const std::string& model) {
  return octalane_json({"run", "-m", model, "-p", "any text", "-n", "4"})["logits_hash"];
}

TEST(Folder, runs_like_the_file_it_was_made_of) {
  for (const char* like : {"tiny-qwen2", "tiny-qwen3"}) {  // llama heads turn in another order there
    EXPECT_EQ(logits_hash(folder_of(like, "f16", "f16")), logits_hash(tiny_model(like, "f16"))) << like;
  }
}

TEST(Folder, says_which_keys_it_has_no_place_for) {
  const std::string out = scratch() / "keys";
  fs::remove_all(out);
  const Json made = octalane_json({"quantize", tiny_model("tiny-qwen3", "f16"), out, "--format", "mlx-mxfp4"});
  EXPECT_EQ(made["not_kept"], Json::array({"general.name"}));
}

TEST(Folder, goes_back_to_the_same_file) {
  for (const char* like : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    const std::string file = tiny_model(like, "f32"), back = scratch() / "back.gguf";
    const Json made = octalane_json({"quantize", folder_of(like, "f32"), back, "--format", "f32"});
    EXPECT_EQ(made["container"], "gguf");
    const Json before = octalane_json({"inspect", file}), after = octalane_json({"inspect", back});
    EXPECT_EQ(before["tensors"].size(), after["tensors"].size());
    EXPECT_EQ(logits_hash(back), logits_hash(file)) << like;
    for (const auto& [key, value] : before["metadata"].items()) {
      if (key == "general.name" || key == "tokenizer.ggml.add_bos_token") continue;
      if (key == "general.file_type" || key.ends_with("dimension_count") || key.ends_with("value_length")) continue;
      ASSERT_TRUE(after["metadata"].contains(key)) << key;
      if (value.is_number_float()) {
        EXPECT_NEAR(after["metadata"][key].get<double>(), value.get<double>(), 1e-6 * value.get<double>()) << key;
      } else {
        EXPECT_EQ(after["metadata"][key], value) << key;
      }
    }
  }
}

TEST(Folder, serves_every_command_in_every_mode) {
  for (const char* format : {"mlx-affine-4-g64", "mlx-affine-8-g32", "mlx-affine-3-g128-f16", "mlx-affine-6-g64-f32",
                             "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4"}) {
    const std::string folder = folder_of("tiny-llama", format);
    const Json view = octalane_json({"inspect", folder});
    EXPECT_EQ(view["format"], "safetensors");
    EXPECT_EQ(view["architecture"], "llama");
    const Json plans = octalane_json({"plan", "-m", folder, "--tokens", "1,8"})["plans"];
    ASSERT_FALSE(plans.empty());
    for (const Json& plan : plans) EXPECT_EQ(plan["format"], format);
    EXPECT_EQ(octalane_json({"run", "-m", folder, "-p", "a", "-n", "2"})["tokens"], 2) << format;

    const std::string x = scratch() / "x.npy", y = scratch() / "y.npy";
    ASSERT_TRUE(write_npy(x, dense_view<const float>(std::vector<float>(512, 0.5f).data(), 2, 256)));
    const Json product = octalane_json(
        {"matmul", "-w", folder + "/model.safetensors", "-t", "model.layers.0.mlp.up_proj", "-x", x, "-o", y});
    EXPECT_EQ(product["format"], format);
    EXPECT_LT(product["kernel_error"].get<double>(), 1e-6);
  }
}

TEST(Folder, layers_may_have_formats_of_their_own) {
  const std::string first = folder_of("tiny-qwen3", "mlx-affine-4-g32"), mixed = scratch() / "mixed";
  fs::remove_all(mixed);
  octalane_json({"quantize", first, mixed, "--format", "mlx-affine-8-g64", "--tensor", "*.down_proj"});
  std::map<std::string, std::string> formats;
  const Json view = octalane_json({"inspect", mixed});
  for (const Json& tensor : view["tensors"]) formats[tensor["name"]] = tensor["format"];
  EXPECT_EQ(formats["model.layers.0.mlp.down_proj"], "mlx-affine-8-g64");
  EXPECT_EQ(formats["model.layers.0.mlp.up_proj"], "mlx-affine-4-g32");
  EXPECT_EQ(formats["model.norm.weight"], "f32");
  EXPECT_EQ(octalane_json({"run", "-m", mixed, "-p", "a", "-n", "2"})["tokens"], 2);
}

TEST(Folder, rows_that_do_not_fit_a_group_get_smaller_groups) {
  const std::string out = scratch() / "groups";
  fs::remove_all(out);
  const Json made = octalane_json({"quantize", tiny_model("tiny-qwen2", "f16"), out, "--format", "mlx-affine-4-g128"});
  for (const Json& row : made["tensors"]) {
    if (row["to"] == "f32") continue;
    EXPECT_EQ(row["to"], "mlx-affine-4-g32") << row["name"];  // 96 and 160 columns
    EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("is not a multiple of 128"));
  }
}

TEST(Folder, random_models_can_be_made_as_folders) {
  const std::string out = scratch() / "synth-folder";
  fs::remove_all(out);
  octalane_json({"synth", "--like", "tiny-llama", "--format", "mlx-affine-4-g64", out});
  EXPECT_EQ(octalane_json({"run", "-m", out, "-p", "a", "-n", "2"})["tokens"], 2);
}

/// A folder of random weights in the shapes of a tiny model.
std::string random_folder(const std::string& like, const std::string& format) {
  const std::string out = scratch() / ("synth-" + like + "-" + format);
  fs::remove_all(out);
  octalane_json({"synth", "--like", like, "--format", format, out});
  return out;
}

TEST(Folder, additive_codebooks_are_listed_with_all_their_bytes) {
  const Json view = octalane_json({"inspect", random_folder("tiny-qwen2", "additive-m2v8-g128")});
  std::map<std::string, Json> tensors;
  for (const Json& tensor : view["tensors"]) tensors[tensor["name"]] = tensor;
  const Json& up = tensors.at("model.layers.0.mlp.up_proj");  // 96 columns: one group, of 96
  EXPECT_EQ(up["format"], "additive-m2v8-g128");
  EXPECT_EQ(up["bytes"], 160 * 96 / 8 * 2 + 2 * 256 * 8 * 2 + 160 * 2);
  EXPECT_EQ(tensors.at("model.embed_tokens.weight")["format"], "f16");
}

TEST(Folder, additive_codebooks_run_and_multiply) {
  for (const char* format : {"additive-m2v8-g128", "additive-m1v4-g32", "additive-m2v4-row", "aqlm-2x8"}) {
    const std::string folder = random_folder("tiny-qwen2", format);  // 160 columns: the last group is shorter
    EXPECT_EQ(octalane_json({"run", "-m", folder, "-p", "a", "-n", "2"})["tokens"], 2);
    Matrix x{std::vector<float>(3 * 160), 3, 160};
    for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(i % 7) - 3.0f;
    const std::string in = scratch() / "additive-x.npy", out = scratch() / "additive-y.npy";
    ASSERT_TRUE(write_npy(in, std::as_const(x).view()));
    const Json made =
        octalane_json({"matmul", "-w", folder, "-t", "model.layers.1.mlp.down_proj", "-x", in, "-o", out});
    EXPECT_EQ(made["format"], format);
    EXPECT_LT(made["kernel_error"].get<double>(), 1e-6);
  }
}

TEST(Folder, additive_codebooks_are_copied_and_converted_to_gguf_in_its_row_order) {
  const std::string folder = random_folder("tiny-llama", "additive-m2v8-g128"), copy = scratch() / "additive-copy";
  const std::string file = scratch() / "additive.gguf", back = scratch() / "additive-f32";
  for (const std::string& path : {copy, back}) fs::remove_all(path);
  octalane_json({"quantize", folder, copy, "--format", "f16", "--container", "folder", "--keep", "*_proj"});
  EXPECT_EQ(logits_hash(copy), logits_hash(folder));
  octalane_json({"quantize", folder, file, "--format", "f32"});
  octalane_json({"quantize", file, back, "--format", "f32", "--container", "folder"});
  // Vector kernels multiply codebooks without rounding them to bfloat16; scalar ones round all weights alike.
  const Json original = octalane_json({"run", "-m", folder, "-p", "any text", "-n", "16", "--isa", "scalar"});
  for (const std::string& path : {file, back}) {
    EXPECT_EQ(octalane_json({"run", "-m", path, "-p", "any text", "-n", "16", "--isa", "scalar"})["text"],
              original["text"]);
  }
  EXPECT_EQ(octalane({"quantize", folder, file, "--format", "f16", "--keep", "*q_proj"}).exit_code, 1);
}

TEST(Folder, what_a_container_cannot_hold_is_an_error_before_anything_is_written) {
  const std::string file = tiny_model("tiny-llama", "f16"), folder = scratch() / "refused";
  const auto error = [](const Arguments& arguments) {
    const Outcome result = octalane(arguments);
    EXPECT_EQ(result.exit_code, 1);
    return result.err;
  };
  EXPECT_THAT(error({"quantize", file, folder, "--format", "q4_0", "--container", "folder"}),
              HasSubstr("q4_0 has no place in a model folder"));
  EXPECT_THAT(error({"quantize", file, folder + ".gguf", "--format", "mlx-affine-4-g64"}),
              HasSubstr("mlx-affine-4-g64 has no place in a GGUF file"));
  EXPECT_THAT(error({"quantize", file, folder, "--format", "mlx-mxfp4", "--container", "gguf"}),
              HasSubstr("--format: mlx-mxfp4 has no place in a GGUF file"));
  EXPECT_THAT(error({"quantize", file, folder, "--format", "mlx-mxfp4", "--keep", "nope*"}),
              HasSubstr("--keep: \"nope*\": matches no tensor"));
  EXPECT_THAT(
      error({"quantize", tiny_model("tiny-llama", "q8_0"), folder, "--format", "mlx-mxfp4", "--keep", "output*"}),
      HasSubstr("output.weight"));
  EXPECT_FALSE(fs::exists(folder));
  fs::create_directories(folder + "-used/x");
  EXPECT_THAT(error({"quantize", file, folder + "-used", "--format", "mlx-mxfp4"}), HasSubstr("new or empty folder"));
  for (const auto& entry : fs::directory_iterator(scratch())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("refused.")));
  }
}

}  // namespace
}  // namespace octalane::cli_test
