// Folders of CodeGEMM and AQLM: read as numpy reads them (formats/make_additive_golden.py), written, and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "files/safetensors.h"

namespace octalane {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kPath = "model.layers.0.mlp.up_proj";

std::string golden(const std::string& name) { return std::string(OCTALANE_TEST_DATA) + "/checkpoint/golden/" + name; }

json read_json_file(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

/// A tensor of a folder that is about to be written.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

/// The tensors and config.json of a golden folder, to be changed and written anew.
struct Folder {
  std::map<std::string, Tensor> tensors;
  json config;

  explicit Folder(const std::string& name) : config(read_json_file(golden(name) + "/config.json")) {
    const Expected<SafetensorsFile> file = SafetensorsFile::open(golden(name) + "/model.safetensors");
    EXPECT_TRUE(file);
    for (const SafetensorsTensor& tensor : file->tensors()) {
      tensors[std::string(tensor.name)] = {
          std::string(tensor.dtype), tensor.shape, {tensor.data, tensor.data + tensor.bytes}};
    }
  }
  Tensor& part(const std::string& name) { return tensors.at(kPath + "." + name); }

  /// Opens it from a folder that is then removed; files that are open stay readable.
  Expected<Checkpoint> open() const {
    const std::string path = testing::TempDir() + "/octalane_additive_" + std::to_string(::getpid());
    fs::remove_all(path);
    fs::create_directories(path);
    SafetensorsWriter writer = *SafetensorsWriter::create(path);
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(writer.add_tensor(name, tensor.dtype, tensor.shape)) << name;
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(writer.write_tensor(tensor.bytes)) << name;
    EXPECT_TRUE(writer.finish());
    if (!config.is_null()) std::ofstream(path + "/config.json") << config;
    Expected<Checkpoint> checkpoint = Checkpoint::open(path);
    fs::remove_all(path);
    return checkpoint;
  }
  std::string error() const {
    const Expected<Checkpoint> checkpoint = open();
    return checkpoint ? "" : checkpoint.error().message;
  }
  /// The type of the layer, when the folder can be opened.
  std::string type() const {
    const Expected<Checkpoint> checkpoint = open();
    return checkpoint ? checkpoint->find(kPath)->type : checkpoint.error().message;
  }
};

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(value == value ? std::bit_cast<uint32_t>(value) : 0x7FC00000);
  return bits;
}

class AdditiveFolder : public testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const std::string type_ = name_ == "aqlm" ? "aqlm-2x8" : "additive-m2v8-g128";
};

TEST_P(AdditiveFolder, decodes_to_the_values_of_numpy) {
  const std::string folder = golden(name_);
  const Expected<Checkpoint> checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const CheckpointTensor& tensor = *checkpoint->find(kPath);
  EXPECT_EQ(tensor.type, type_);
  EXPECT_EQ(tensor.role, "blk.0.ffn_up.weight");
  EXPECT_THAT(tensor.shape, testing::ElementsAre(160, 5));
  EXPECT_EQ(checkpoint->find_role("token_embd.weight")->type, "f16");
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  std::vector<float> wanted(160 * 5), got(wanted);
  std::ifstream(folder + "/values.f32", std::ios::binary).read(reinterpret_cast<char*>(wanted.data()), 160 * 5 * 4);
  for (int64_t row = 0; row < 5; ++row) tensor.matrix().decode_row(row, got.data() + row * 160);
  EXPECT_EQ(bits_of(got), bits_of(wanted));
}

TEST_P(AdditiveFolder, counts_the_bytes_of_all_parts) {
  uint64_t bytes = 0;
  const Folder folder(name_);
  for (const auto& [name, tensor] : folder.tensors) bytes += name.starts_with(kPath) ? tensor.bytes.size() : 0;
  EXPECT_EQ(folder.open()->find(kPath)->bytes, bytes);
}

TEST_P(AdditiveFolder, needs_no_configuration) {
  Folder folder(name_);
  folder.config = nullptr;
  EXPECT_EQ(folder.type(), type_);
}

TEST_P(AdditiveFolder, parts_must_all_be_there) {
  for (const char* part : {"codes", "codebooks", "scales"}) {
    Folder folder(name_);
    folder.tensors.erase(kPath + "." + part);
    if (std::string(part) == "codes") {
      EXPECT_THAT(folder.error(), HasSubstr(kPath + ".scales\": wanted " + kPath + ".codes beside it, got none"));
    } else {
      EXPECT_THAT(folder.error(), HasSubstr(kPath + ".codes\": wanted " + kPath + "." + part + " beside it, got none"));
    }
  }
}

TEST_P(AdditiveFolder, parts_must_have_their_types_and_shapes) {
  for (const char* part : {"codebooks", "scales"}) {
    Folder folder(name_);
    folder.part(part).dtype = "BF16";
    EXPECT_THAT(folder.error(), AllOf(HasSubstr(kPath + "." + part + "\": wanted F16 ["), HasSubstr("got BF16 [")));
  }
  for (const char* part : {"codes", "codebooks", "scales"}) {
    Folder folder(name_);
    Tensor& tensor = folder.part(part);
    tensor.shape = {1, static_cast<int64_t>(tensor.bytes.size()) / (tensor.dtype == "I32"  ? 4
                                                                    : tensor.dtype == "I8" ? 1
                                                                                           : 2)};
    EXPECT_THAT(folder.error(), HasSubstr(kPath + "." + part + "\": wanted ")) << part;
  }
}

TEST_P(AdditiveFolder, codebooks_must_be_finite) {
  Folder folder(name_);
  const uint16_t nan = 0x7E00;
  std::memcpy(folder.part("codebooks").bytes.data() + 2 * 4000, &nan, 2);
  EXPECT_THAT(folder.error(), HasSubstr(kPath + ".codebooks\": codebooks: wanted finite values, got nan"));
}

TEST_P(AdditiveFolder, a_layer_has_codes_or_a_weight) {
  Folder folder(name_);
  folder.tensors[kPath + ".weight"] = {"F16", {1, 1}, std::vector<std::byte>(2)};
  EXPECT_THAT(folder.error(), HasSubstr("wanted codes or a weight, got \"" + kPath + ".weight\" as well"));
}

INSTANTIATE_TEST_SUITE_P(Golden, AdditiveFolder, testing::Values("codegemm", "aqlm"),
                         [](const auto& each) { return each.param; });

/// What becomes of the codegemm folder when one number of its configuration is another.
std::string with_number(const std::string& key, const json& value) {
  Folder folder("codegemm");
  folder.config["codegemm"][key] = value;
  return folder.type();
}

TEST(AdditiveConfig, other_kinds_of_codebooks_are_listed_and_not_computed_with) {
  EXPECT_EQ(with_number("group_size", 48), "codegemm of 2 codebooks of 8 bits, vectors of 8 and groups of 48");
  EXPECT_EQ(with_number("group_size", 0), "codegemm of 2 codebooks of 8 bits, vectors of 8 and groups of 0");
  EXPECT_EQ(with_number("num_codebooks", 3), "codegemm of 3 codebooks of 8 bits, vectors of 8 and groups of 128");
  EXPECT_EQ(with_number("nbits_per_codebook", 16),
            "codegemm of 2 codebooks of 16 bits, vectors of 8 and groups of 128");
  EXPECT_EQ(with_number("vec_len", 1ll << 40),
            fmt::format("codegemm of 2 codebooks of 8 bits, vectors of {} and groups of 128", 1ll << 40));
  EXPECT_EQ(with_number("group_size", "128"), "additive codebooks, config.json has no whole number group_size");
  EXPECT_EQ(with_number("vec_len", nullptr), "additive codebooks, config.json has no whole number vec_len");
  Folder folder("codegemm");
  folder.config["codegemm"] = {1, 2};
  EXPECT_THAT(folder.type(), HasSubstr("config.json has no whole number"));
  Folder aqlm("aqlm");
  aqlm.config["quantization_config"]["nbits_per_codebook"] = 16;
  EXPECT_EQ(aqlm.type(), "aqlm of 2 codebooks of 16 bits, vectors of 8");
  aqlm.config["quantization_config"]["out_group_size"] = 2;
  EXPECT_EQ(aqlm.type(), "aqlm of vectors over 2 rows");
  EXPECT_EQ(aqlm.open()->find(kPath)->format, nullptr);
}

TEST(AdditiveConfig, must_fit_the_shapes) {
  EXPECT_THAT(with_number("group_size", 64), HasSubstr(".scales\": wanted F16 [3, 5], got F16 [2, 5]"));
  EXPECT_THAT(with_number("group_size", -1), HasSubstr(".scales\": wanted F16 [1, 5], got F16 [2, 5]"));
  EXPECT_THAT(with_number("num_codebooks", 1), HasSubstr(".codes\": wanted I32 [1, 5, 5], got I32 [2, 5, 5]"));
  EXPECT_THAT(with_number("vec_len", 4), HasSubstr(".codes\": wanted a multiple of 32 columns, got 80 of [2, 5, 5]"));
  Folder folder("codegemm");
  folder.part("codes").dtype = "U32";
  EXPECT_THAT(folder.error(), HasSubstr(".codes\": wanted I32 [2, 5, 5], got U32 [2, 5, 5]"));
  Folder codegemm_of_aqlm("aqlm");
  codegemm_of_aqlm.config = Folder("codegemm").config;
  EXPECT_THAT(codegemm_of_aqlm.error(), HasSubstr(".codes\": wanted "));
}

TEST(AdditiveConfig, without_it_scales_must_be_of_known_groups) {
  Folder folder("codegemm");
  folder.config = nullptr;
  folder.part("scales") = {"F16", {4, 5}, std::vector<std::byte>(40)};
  EXPECT_THAT(folder.error(),
              HasSubstr(".scales\": wanted a scale for every 32, 64 or 128 of 160 columns or for the row, got 4"));
  for (const auto& [scales, type] :
       {std::pair{5, "additive-m2v8-g32"}, {3, "additive-m2v8-g64"}, {1, "additive-m2v8-row"}}) {
    folder.part("scales") = {"F16", {scales, 5}, std::vector<std::byte>(static_cast<size_t>(scales) * 10)};
    EXPECT_EQ(folder.type(), type);
  }
  folder.part("scales").shape = {};
  folder.part("scales").bytes.resize(2);
  EXPECT_THAT(folder.error(), HasSubstr(".scales\": wanted "));
}

TEST(AdditiveConfig, sizes_of_zero_and_of_thousands_of_millions_are_refused) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {2, 0, 5}, {2, int64_t{1} << 55, 0}, {0, 5, 5}, {2, 5, 0}, {0, int64_t{1} << 56, 0}}) {
    Folder folder("codegemm");
    folder.part("codes") = {"I32", shape, {}};
    EXPECT_THAT(folder.error(), HasSubstr(".codes\": wanted three dimensions of 1 to 2147483647"));
  }
}

/// Headers with bytes changed at random: an error of one line, or values.
TEST(AdditiveConfig, a_damaged_header_is_an_error_or_a_matrix_that_can_be_read) {
  const std::string path = testing::TempDir() + "/octalane_damaged_" + std::to_string(::getpid()) + ".safetensors";
  std::minstd_rand random(3);
  int opened = 0;
  for (const char* name : {"codegemm", "aqlm"}) {
    std::ifstream file(golden(name) + "/model.safetensors", std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    constexpr std::string_view kCharacters = "0123456789,[]{}\":IUF-codebksal.";
    for (int round = 0; round < 1000; ++round) {
      std::vector<char> damaged = bytes;
      for (int i = 0; i < 1 + round % 2; ++i) damaged[8 + random() % 400] = kCharacters[random() % kCharacters.size()];
      std::ofstream(path, std::ios::binary).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
      const Expected<Checkpoint> checkpoint = Checkpoint::open(path);
      if (!checkpoint) {
        EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos);
        continue;
      }
      ++opened;
      for (const CheckpointTensor& tensor : checkpoint->tensors()) {
        if (tensor.format == nullptr) continue;
        std::vector<float> row(static_cast<size_t>(tensor.cols()));
        for (int64_t r = 0; r < tensor.rows(); ++r) tensor.matrix().decode_row(r, row.data());
      }
    }
  }
  fs::remove(path);
  EXPECT_GT(opened, 20);
}

AdditiveMatrix random_matrix(const AdditiveShape& shape, int64_t rows, int64_t cols) {
  std::minstd_rand random(7);
  AdditiveMatrix matrix{shape, rows, cols, {}, {}, {}};
  for (int64_t i = 0; i < rows * shape.code_bytes(cols); ++i)
    matrix.codes.push_back(static_cast<uint8_t>(random() >> 8));
  for (int64_t i = 0; i < shape.codebook_values(); ++i) {
    matrix.codebooks.push_back(static_cast<uint16_t>(random() % 0x7C00 | (random() % 2 << 15)));
  }
  for (int64_t i = 0; i < rows * shape.groups(cols); ++i) matrix.scales.push_back(static_cast<uint16_t>(random() >> 8));
  return matrix;
}

/// Writes folders with the metadata of a golden model.
class AdditiveWriter : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(path_); }
  void TearDown() override { fs::remove_all(path_); }
  CheckpointWriter create() {
    return *CheckpointWriter::create(path_, Container::folder, Checkpoint::open(golden("llama"))->metadata());
  }
  static constexpr std::array<int64_t, 2> kShape{576, 6};
  const std::string role_ = "blk.0.ffn_up.weight";
  const std::string path_ = testing::TempDir() + "/octalane_additive_written_" + std::to_string(::getpid());
};

TEST_F(AdditiveWriter, what_is_written_is_read_again) {
  for (const Format* format : formats()) {
    if (format->additive == nullptr) continue;
    const AdditiveMatrix matrix = random_matrix(format->additive->shape, kShape[1], kShape[0]);
    const std::vector<std::byte> dense(2 * 128 * 4);
    {
      CheckpointWriter writer = create();
      ASSERT_TRUE(writer.add_tensor("token_embd.weight", *find_format("f16"), std::array<int64_t, 2>{128, 4}));
      ASSERT_TRUE(writer.add_tensor(role_, *format, kShape));
      ASSERT_TRUE(writer.write(dense));
      ASSERT_TRUE(writer.write(matrix));
      const Status finished = writer.finish();
      ASSERT_TRUE(finished) << finished.error().message;
    }
    const Expected<Checkpoint> checkpoint = Checkpoint::open(path_);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const CheckpointTensor& tensor = *checkpoint->find_role(role_);
    EXPECT_EQ(tensor.type, format->name);
    const AdditiveMatrix read = additive_matrix(tensor.matrix());
    EXPECT_EQ(read.codes, matrix.codes) << format->name;
    EXPECT_EQ(read.codebooks, matrix.codebooks) << format->name;
    EXPECT_EQ(read.scales, matrix.scales) << format->name;
    fs::remove_all(path_);
  }
}

TEST_F(AdditiveWriter, config_says_what_the_programs_of_each_kind_look_for) {
  const auto written = [&](const char* name) {
    const Format& format = *find_format(name);
    CheckpointWriter writer = create();
    EXPECT_TRUE(writer.add_tensor("output.weight", *find_format("f16"), std::array<int64_t, 2>{32, 1}));
    EXPECT_TRUE(writer.add_tensor(role_, format, kShape));
    EXPECT_TRUE(writer.write(std::vector<std::byte>(64)));
    EXPECT_TRUE(writer.write(random_matrix(format.additive->shape, kShape[1], kShape[0])));
    EXPECT_TRUE(writer.finish());
    json config = read_json_file(path_ + "/config.json");
    fs::remove_all(path_);
    return config;
  };
  json codegemm = written("additive-m2v4-row")["codegemm"];
  EXPECT_EQ(codegemm["arch_config"]["module_names"].size(), 7u);
  codegemm.erase("arch_config");
  EXPECT_EQ(codegemm, json({{"group_size", -1}, {"vec_len", 4}, {"num_codebooks", 2}, {"nbits_per_codebook", 8}}));
  EXPECT_FALSE(written("additive-m2v4-row").contains("quantization_config"));
  const json aqlm{{"quant_method", "aqlm"},  {"in_group_size", 8},
                  {"out_group_size", 1},     {"num_codebooks", 1},
                  {"nbits_per_codebook", 8}, {"linear_weights_not_to_quantize", {"lm_head.weight"}}};
  EXPECT_EQ(written("aqlm-1x8")["quantization_config"], aqlm);
}

TEST_F(AdditiveWriter, what_does_not_fit_the_declaration_is_refused) {
  const Format& format = *find_format("additive-m2v8-g128");
  const AdditiveMatrix sound = random_matrix(format.additive->shape, kShape[1], kShape[0]);
  CheckpointWriter writer = create();
  ASSERT_TRUE(writer.add_tensor(role_, format, kShape));
  EXPECT_THAT(writer.add_tensor("blk.0.ffn_gate.weight", *find_format("additive-m1v4-g32"), kShape).error().message,
              HasSubstr("a folder holds one kind of additive codebooks"));
  EXPECT_FALSE(writer.add_tensor("blk.0.ffn_down.weight", format, std::array<int64_t, 2>{80, 6}));
  EXPECT_THAT(writer.write(std::vector<std::byte>(8)).error().message,
              HasSubstr("wanted a whole matrix of additive-m2v8-g128"));
  EXPECT_FALSE(writer.write(random_matrix(format.additive->shape, 7, 576)));
  EXPECT_FALSE(writer.write(random_matrix({2, 8, 64}, 6, 576)));
  AdditiveMatrix wrong = sound;
  wrong.codebooks[100] = 0xFC00;
  EXPECT_THAT(writer.write(wrong).error().message, HasSubstr("codebooks: wanted finite values, got -inf"));
  wrong = sound;
  wrong.codes.pop_back();
  EXPECT_FALSE(writer.write(wrong));
  EXPECT_TRUE(writer.write(sound));
  EXPECT_THAT(writer.write(sound).error().message, HasSubstr("a matrix more than were declared"));
}

TEST_F(AdditiveWriter, a_gguf_file_has_no_place_for_codebooks) {
  EXPECT_FALSE(can_hold(Container::gguf, *find_format("additive-m2v8-g128")));
  CheckpointWriter writer =
      *CheckpointWriter::create(path_ + ".gguf", Container::gguf, Checkpoint::open(golden("llama"))->metadata());
  EXPECT_FALSE(writer.add_tensor(role_, *find_format("aqlm-2x8"), kShape));
  EXPECT_FALSE(writer.write(AdditiveMatrix{}));
}

}  // namespace
}  // namespace octalane
