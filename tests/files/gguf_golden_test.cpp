// GGUF files written by the PyPI package `gguf`, compared with what that package reads in them (golden/expected.json).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/files_testing.h"
#include "files/ggml_types.h"

namespace octalane {
namespace {

using nlohmann::json;
using testing::golden;

const std::vector<std::string> kTypeNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};

std::string type_name(GgufType type) { return kTypeNames.at(static_cast<size_t>(type)); }

void expect_scalar(const GgufScalar& scalar, const json& expected, const std::string& key) {
  if (const auto* text = std::get_if<std::string_view>(&scalar)) {
    EXPECT_EQ(std::string(*text), expected.get<std::string>()) << key;
  } else if (const auto* flag = std::get_if<bool>(&scalar)) {
    EXPECT_EQ(*flag, expected.get<bool>()) << key;
  } else if (const auto* real = std::get_if<double>(&scalar)) {
    EXPECT_EQ(*real, expected.get<double>()) << key;
  } else if (const auto* natural = std::get_if<uint64_t>(&scalar)) {
    EXPECT_EQ(*natural, expected.get<uint64_t>()) << key;
  } else {
    EXPECT_EQ(std::get<int64_t>(scalar), expected.get<int64_t>()) << key;
  }
}

template <class T, class Json = T>
void expect_elements(const GgufFile& file, const std::string& key, const json& expected) {
  const auto elements = file.get_array<T>(key);
  ASSERT_TRUE(elements) << elements.error().message;
  ASSERT_EQ(elements->size(), expected.size()) << key;
  for (size_t i = 0; i < elements->size(); ++i) EXPECT_EQ((*elements)[i], expected[i].get<Json>()) << key << " " << i;
}

void expect_array(const GgufFile& file, const std::string& key, const std::string& element, const json& expected) {
  if (element == "string") return expect_elements<std::string_view, std::string>(file, key, expected);
  if (element == "bool") return expect_elements<bool>(file, key, expected);
  if (element[0] == 'f') return expect_elements<double>(file, key, expected);
  if (element != "u64") return expect_elements<int64_t>(file, key, expected);
  // The larger half of u64 has no int64.
  const auto whole = file.get_array<int64_t>(key);
  ASSERT_FALSE(whole);
  EXPECT_NE(whole.error().message.find("\"" + key + "\": element 1: wanted an int64"), std::string::npos);
}

std::string hex(const std::byte* data, uint64_t size) {
  std::string text;
  for (uint64_t i = 0; i < size; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(data[i]));
  return text;
}

void expect_as_recorded(const GgufFile& file, const json& expected, const std::byte* begin) {
  EXPECT_EQ(file.version(), expected["version"]);
  ASSERT_EQ(file.metadata().size(), expected["keys"].size());
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const auto& [key, value] = file.metadata()[i];
    const json& row = expected["keys"][i];
    const std::string name(key);
    EXPECT_EQ(name, row["key"]);
    EXPECT_EQ(type_name(value.type), row["type"]) << name;
    if (value.type != GgufType::array) {
      expect_scalar(value.scalar, row["value"], name);
      continue;
    }
    EXPECT_EQ(type_name(value.array.type), row["element"]) << name;
    if (row.contains("value")) expect_array(file, name, row["element"], row["value"]);
  }
  ASSERT_EQ(file.tensors().size(), expected["tensors"].size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    const json& row = expected["tensors"][i];
    EXPECT_EQ(tensor.name, row["name"].get<std::string>());
    EXPECT_EQ(ggml_type_name(tensor.ggml_type), row["type"]) << tensor.name;
    EXPECT_EQ(tensor.shape, row["shape"].get<std::vector<int64_t>>()) << tensor.name;
    EXPECT_EQ(tensor.bytes, row["bytes"]) << tensor.name;
    EXPECT_EQ(tensor.data - begin, row["offset"]) << tensor.name;
    EXPECT_EQ(hex(tensor.data, tensor.bytes), row["data"]) << tensor.name;
  }
}

class GgufGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    expected_ = json::parse(testing::read_bytes(golden("expected.json")))["gguf"][GetParam()];
    ASSERT_TRUE(expected_.is_object());
  }
  json expected_;
};

TEST_P(GgufGolden, reads_what_the_gguf_package_reads) {
  const testing::ExactBytes bytes(testing::read_bytes(golden(GetParam())));
  const auto file = GgufFile::parse(bytes.span(), GetParam());
  ASSERT_TRUE(file) << file.error().message;
  expect_as_recorded(*file, expected_, bytes.span().data());
}

TEST_P(GgufGolden, a_mapped_file_reads_the_same) {
  const auto file = GgufFile::open(golden(GetParam()));
  ASSERT_TRUE(file) << file.error().message;
  const std::string bytes = testing::read_bytes(golden(GetParam()));
  EXPECT_EQ(file->file_bytes(), bytes.size());
  // The mapping starts where the first key lies at its known place.
  const auto* first_key = reinterpret_cast<const std::byte*>(file->metadata()[0].first.data());
  expect_as_recorded(*file, expected_, first_key - 32);
}

TEST_P(GgufGolden, copied_through_the_writer_is_identical_but_for_version_2) {
  const testing::TemporaryFolder folder;
  const auto file = GgufFile::open(golden(GetParam()));
  ASSERT_TRUE(file) << file.error().message;
  auto writer = GgufWriter::create(folder / "copy.gguf");
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& [key, value] : file->metadata()) writer->copy(key, value);
  for (const GgufTensor& t : file->tensors()) ASSERT_TRUE(writer->add_tensor(t.name, t.ggml_type, t.shape));
  for (const GgufTensor& t : file->tensors()) ASSERT_TRUE(writer->write_tensor({t.data, t.bytes}));
  const Status finished = writer->finish();
  ASSERT_TRUE(finished) << finished.error().message;
  std::string original = testing::read_bytes(golden(GetParam()));
  original[4] = 3;
  EXPECT_TRUE(testing::read_bytes(folder / "copy.gguf") == original);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden,
                         ::testing::Values("types.v3.gguf", "types.v2.gguf", "tensors.v3.gguf", "tensors.v2.gguf",
                                           "aligned.v3.gguf", "aligned.v2.gguf", "built.v3.gguf", "empty.v3.gguf"),
                         [](const auto& file) {
                           std::string name = file.param.substr(0, file.param.find(".gguf"));
                           name[name.find('.')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace octalane
