// quantize and synth: what the files they write hold.
#include <cmath>
#include <map>

#include "cli/tool.h"
#include "files/gguf.h"
#include "formats/format.h"

namespace octalane::cli_test {
namespace {

GgufFile open(const std::string& path) {
  Expected<GgufFile> file = GgufFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  return *file;
}

std::string_view type_of(const GgufFile& file, std::string_view name) {
  const GgufTensor* tensor = file.find_tensor(name);
  return tensor != nullptr ? find_ggml_format(tensor->ggml_type)->name : "absent";
}

std::vector<float> decoded(const GgufTensor& tensor) {
  const Format& format = *find_ggml_format(tensor.ggml_type);
  const int64_t cols = tensor.cols();
  std::vector<float> values(static_cast<size_t>(tensor.rows() * cols));
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    const Planes planes(format.spec, 1, cols);
    format.to_planes(tensor.data + row * format.row_bytes(cols), cols, planes.row(0));
    decode_row(format.spec, planes.row(0), cols, values.data() + row * cols);
  }
  return values;
}

TEST(Quantize, converts_matrices_to_every_format_and_keeps_vectors) {
  const std::string in = tiny_model("tiny-llama", "f32");
  // Bounds a little above the RMS error of each format on Gaussian weights.
  const std::map<std::string, double> bounds{{"f32", 0},     {"f16", 3e-4},  {"bf16", 3e-3},  {"q4_0", 0.1},
                                             {"q4_1", 0.1},  {"q5_0", 0.05}, {"q5_1", 0.05},  {"q8_0", 7e-3},
                                             {"q4_k", 0.09}, {"q5_k", 0.05}, {"q6_k", 0.025}, {"mxfp4", 0.15}};
  for (const auto& [format, bound] : bounds) {
    const std::string out = scratch() / ("to-" + format + ".gguf");
    const Json result = octalane_json({"quantize", in, out, "--format", format});
    const GgufFile before = open(in), after = open(out);
    ASSERT_EQ(result["tensors"].size(), before.tensors().size());
    ASSERT_EQ(after.tensors().size(), before.tensors().size());
    for (const Json& row : result["tensors"]) {
      const std::string name = row["name"];
      const bool matrix = before.find_tensor(name)->shape.size() == 2;
      EXPECT_EQ(row["from"], "f32");
      EXPECT_EQ(row["to"], matrix ? format : "f32") << name;
      EXPECT_EQ(type_of(after, name), matrix ? format : "f32") << name;
      EXPECT_EQ(before.find_tensor(name)->shape, after.find_tensor(name)->shape);
      if (matrix) {
        EXPECT_LE(row["rel_error"].get<double>(), bound) << format;
        EXPECT_GE(row["rel_error"].get<double>(), bound / 4) << format;
      } else {
        EXPECT_EQ(decoded(*before.find_tensor(name)), decoded(*after.find_tensor(name))) << name;
      }
    }
    EXPECT_EQ(octalane({"run", "-m", out, "-p", "a", "-n", "2"}).exit_code, 0) << format;
  }
}

TEST(Quantize, reports_the_error_that_the_written_weights_have) {
  const std::string in = tiny_model("tiny-llama", "f16"), out = scratch() / "error.gguf";
  const Json result = octalane_json({"quantize", in, out, "--format", "q4_k", "--threads", "3"});
  const GgufFile before = open(in), after = open(out);
  for (const Json& row : result["tensors"]) {
    const std::vector<float> a = decoded(*before.find_tensor(row["name"].get<std::string>()));
    const std::vector<float> b = decoded(*after.find_tensor(row["name"].get<std::string>()));
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(double{b[i]} - double{a[i]}, 2);
      norm += double{a[i]} * double{a[i]};
    }
    EXPECT_NEAR(row["rel_error"].get<double>(), std::sqrt(difference / norm), 1e-12);
  }
}

TEST(Quantize, copies_metadata_and_states_the_new_type) {
  const std::string in = tiny_model("tiny-llama", "f16"), out = scratch() / "metadata.gguf";
  octalane_json({"quantize", in, out, "--format", "q5_1"});
  Json before = octalane_json({"inspect", in})["metadata"], after = octalane_json({"inspect", out})["metadata"];
  EXPECT_EQ(before["general.file_type"], 1);
  EXPECT_EQ(after["general.file_type"], 9);
  EXPECT_EQ(after["general.quantization_version"], 2);
  before.erase("general.file_type");
  after.erase("general.file_type");
  EXPECT_EQ(before, after);
}

TEST(Quantize, falls_back_by_name_where_blocks_do_not_fit) {
  const std::string in = tiny_model("tiny-qwen2", "f16"), out = scratch() / "fallback.gguf";
  for (const auto& [asked, used] : std::map<std::string, std::string>{
           {"q4_k", "q5_0"}, {"q5_k", "q5_1"}, {"q6_k", "q8_0"}, {"q2_k", "q4_0"}, {"iq4_xs", "iq4_nl"}}) {
    const Json result = octalane_json({"quantize", in, out, "--format", asked});
    const GgufFile file = open(out);
    for (const Json& row : result["tensors"]) {
      const std::string name = row["name"];
      if (file.find_tensor(name)->shape.size() < 2) continue;
      EXPECT_EQ(row["to"], used) << name;
      EXPECT_EQ(type_of(file, name), used);
      EXPECT_NE(row["why"].get<std::string>().find("is not a multiple of 256, the block of " + asked),
                std::string::npos);
    }
  }
}

TEST(Quantize, touches_only_the_tensors_asked_for) {
  const std::string in = tiny_model("tiny-llama", "f16"), out = scratch() / "some.gguf";
  octalane_json({"quantize", in, out, "--format", "q8_0", "--tensor", "blk.*.ffn_*", "--tensor", "output.weight",
                 "--keep", "blk.1.*"});
  const GgufFile file = open(out);
  EXPECT_EQ(type_of(file, "blk.0.ffn_up.weight"), "q8_0");
  EXPECT_EQ(type_of(file, "output.weight"), "q8_0");
  EXPECT_EQ(type_of(file, "blk.1.ffn_up.weight"), "f16");
  EXPECT_EQ(type_of(file, "blk.0.attn_q.weight"), "f16");
  EXPECT_EQ(type_of(file, "token_embd.weight"), "f16");
}

TEST(Quantize, gives_the_same_file_for_any_number_of_threads) {
  const std::string in = tiny_model("tiny-llama", "f32"), one = scratch() / "t1.gguf", three = scratch() / "t3.gguf";
  octalane_json({"quantize", in, one, "--format", "q6_k", "--threads", "1"});
  octalane_json({"quantize", in, three, "--format", "q6_k", "--threads", "3"});
  EXPECT_EQ(read_file(one), read_file(three));
}

TEST(Synth, depends_on_the_seed_and_on_nothing_else) {
  const auto made = [](const std::string& seed, const std::string& threads) {
    const std::string path = scratch() / "seed.gguf";
    octalane_json({"synth", "--like", "tiny-qwen3", "--format", "q4_0", "--seed", seed, "--threads", threads, path});
    return read_file(path);
  };
  const std::string first = made("1", "1");
  EXPECT_EQ(first, made("1", "3"));
  EXPECT_NE(first, made("2", "1"));
}

TEST(Synth, weights_are_gaussian_of_unit_gain_and_rows_differ) {
  const GgufFile file = open(tiny_model("tiny-llama", "f32"));
  const std::vector<float> values = decoded(*file.find_tensor("blk.0.ffn_down.weight"));
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * double{value};
    fourth += std::pow(double{value}, 4);
  }
  const auto count = static_cast<double>(values.size());
  const double variance = squares / count;
  // Standard errors of mean, variance and kurtosis of 131072 (pooled) samples, five times over.
  EXPECT_NEAR(sum / count * std::sqrt(512), 0, 5 / std::sqrt(count));
  EXPECT_NEAR(variance * 512, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count / (variance * variance), 3, 5 * std::sqrt(24 / count));
  const std::vector<float> first(values.begin(), values.begin() + 512),
      second(values.begin() + 512, values.begin() + 1024);
  EXPECT_NE(first, second);
}

TEST(Synth, every_tiny_architecture_runs) {
  for (const char* like : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    const Json result =
        octalane_json({"run", "-m", tiny_model(like), "-p", "any text: \xC3\xA4\xE2\x82\xAC", "-n", "4", "--chat"});
    EXPECT_EQ(result["tokens"], 4) << like;
  }
}

}  // namespace
}  // namespace octalane::cli_test
