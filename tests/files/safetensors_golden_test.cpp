// Files that safetensors, mlx and huggingface_hub wrote, compared with what the package safetensors reads in them
// (golden/safetensors/expected.json).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/files_testing.h"
#include "files/safetensors.h"

namespace octalane {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

std::string golden(const std::string& name) { return testing::golden("safetensors/" + name); }

json expected_of(const std::string& name) { return json::parse(testing::read_bytes(golden("expected.json"))).at(name); }

std::string hex(const SafetensorsTensor& tensor) {
  std::string text;
  for (uint64_t i = 0; i < tensor.bytes; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(tensor.data[i]));
  return text;
}

void expect_tensor(const SafetensorsTensor& tensor, const json& row) {
  EXPECT_EQ(tensor.name, row["name"].get<std::string>());
  EXPECT_EQ(tensor.dtype, row["dtype"].get<std::string>()) << tensor.name;
  EXPECT_EQ(tensor.shape, row["shape"].get<std::vector<int64_t>>()) << tensor.name;
  EXPECT_EQ(hex(tensor), row["data"]) << tensor.name;
}

void expect_as_recorded(const SafetensorsFile& file, const json& expected) {
  const size_t pairs = expected["metadata"].is_null() ? 0 : expected["metadata"].size();
  ASSERT_EQ(file.metadata().size(), pairs);
  for (const auto& [key, value] : file.metadata())
    EXPECT_EQ(expected["metadata"].value(std::string(key), "absent"), std::string(value)) << key;
  ASSERT_EQ(file.tensors().size(), expected["tensors"].size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    expect_tensor(file.tensors()[i], expected["tensors"][i]);
    EXPECT_EQ(file.find_tensor(file.tensors()[i].name), &file.tensors()[i]);
  }
  EXPECT_EQ(file.find_tensor("no such tensor"), nullptr);
}

/// Everything of a set through the writer; the error, or "written".
std::string copy(const SafetensorsSet& set, const std::string& to, uint64_t shard_bytes) {
  auto writer = SafetensorsWriter::create(to, shard_bytes);
  if (!writer) return writer.error().message;
  for (const auto& [key, value] : set.metadata()) writer->set_metadata(key, value);
  for (const SafetensorsTensor& t : set.tensors()) {
    if (const Status added = writer->add_tensor(t.name, t.dtype, t.shape); !added) return added.error().message;
  }
  for (const SafetensorsTensor& t : set.tensors()) {
    const uint64_t half = t.bytes / 2;  // in two pieces
    for (const auto piece : {std::span(t.data, half), std::span(t.data + half, t.bytes - half)}) {
      if (const Status written = writer->write_tensor(piece); !written) return written.error().message;
    }
  }
  const Status finished = writer->finish();
  return finished ? "written" : finished.error().message;
}

class SafetensorsGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SafetensorsGolden, reads_what_the_package_reads) {
  const testing::ExactBytes bytes(testing::read_bytes(golden(GetParam())));
  const auto file = SafetensorsFile::parse(bytes.span(), GetParam());
  ASSERT_TRUE(file) << file.error().message;
  const json expected = expected_of(GetParam());
  expect_as_recorded(*file, expected);
  for (size_t i = 0; i < file->tensors().size(); ++i)
    EXPECT_EQ(file->tensors()[i].data - bytes.span().data(), expected["tensors"][i]["offset"]);
}

TEST_P(SafetensorsGolden, a_mapped_file_reads_the_same) {
  const auto file = SafetensorsFile::open(golden(GetParam()));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->path(), golden(GetParam()));
  EXPECT_EQ(file->file_bytes(), testing::read_bytes(golden(GetParam())).size());
  expect_as_recorded(*file, expected_of(GetParam()));
  for (const SafetensorsTensor& tensor : file->tensors()) file->release(tensor);
  expect_as_recorded(*file, expected_of(GetParam()));  // released pages are read again
}

INSTANTIATE_TEST_SUITE_P(Files, SafetensorsGolden,
                         ::testing::Values("types.safetensors", "mlx.safetensors", "empty.safetensors",
                                           "sharded/model-00001-of-00004.safetensors",
                                           "sharded/model-00004-of-00004.safetensors"),
                         [](const auto& file) {
                           std::string name = file.param.substr(0, file.param.find(".safetensors"));
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(SafetensorsCopy, one_file_written_again_is_the_file_of_the_package) {
  for (const char* name : {"types.safetensors", "empty.safetensors"}) {
    const TemporaryFolder folder;
    const auto set = SafetensorsSet::open(golden(name));
    ASSERT_TRUE(set) << set.error().message;
    ASSERT_EQ(copy(*set, folder / "", 1 << 20), "written");
    EXPECT_TRUE(testing::read_bytes(folder / "model.safetensors") == testing::read_bytes(golden(name))) << name;
    EXPECT_EQ(folder.files(), 1u);
  }
}

TEST(SafetensorsCopy, shards_and_index_written_again_are_those_of_the_package) {
  const auto set = SafetensorsSet::open(golden("sharded"));
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->shards().size(), 4u);
  const TemporaryFolder folder;
  ASSERT_EQ(copy(*set, folder / "", 400), "written");
  EXPECT_EQ(folder.files(), 5u);
  for (const SafetensorsFile& shard : set->shards()) {
    const std::string name = shard.path().substr(shard.path().rfind('/') + 1);
    EXPECT_TRUE(testing::read_bytes(folder / name) == testing::read_bytes(shard.path())) << name;
  }
  const std::string index = "model.safetensors.index.json";
  EXPECT_EQ(testing::read_bytes(folder / index), testing::read_bytes(golden("sharded/" + index)));
}

TEST(SafetensorsCopy, data_in_another_order_than_the_header_is_read_and_written_in_header_order) {
  const TemporaryFolder folder;
  const auto mlx = SafetensorsSet::open(golden("mlx.safetensors"));
  ASSERT_TRUE(mlx) << mlx.error().message;
  ASSERT_EQ(copy(*mlx, folder / "again.safetensors", 1 << 20), "written");
  const auto again = SafetensorsFile::open(folder / "again.safetensors");
  ASSERT_TRUE(again) << again.error().message;
  expect_as_recorded(*again, expected_of("mlx.safetensors"));
  const std::byte* end = again->tensors()[0].data;
  for (const SafetensorsTensor& tensor : again->tensors()) {
    EXPECT_EQ(tensor.data, end) << tensor.name;
    end = tensor.data + tensor.bytes;
  }
}

TEST(SafetensorsSetGolden, shards_are_one_list_of_tensors) {
  const auto set = SafetensorsSet::open(golden("sharded"));
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->path(), golden("sharded"));
  EXPECT_EQ(set->metadata().size(), 1u);
  size_t at = 0;
  uint64_t bytes = 0;
  for (int shard = 1; shard <= 4; ++shard) {
    const std::string name = fmt::format("sharded/model-{:05}-of-00004.safetensors", shard);
    bytes += testing::read_bytes(golden(name)).size();
    const json expected = expected_of(name);
    for (const json& row : expected["tensors"]) {
      ASSERT_LT(at, set->tensors().size());
      const SafetensorsTensor& tensor = set->tensors()[at++];
      expect_tensor(tensor, row);
      EXPECT_EQ(set->find_tensor(tensor.name), &tensor);
      set->release(tensor);
      expect_tensor(tensor, row);
    }
  }
  EXPECT_EQ(at, set->tensors().size());
  EXPECT_EQ(set->file_bytes(), bytes);
  EXPECT_EQ(set->find_tensor("no such tensor"), nullptr);
}

}  // namespace
}  // namespace octalane
