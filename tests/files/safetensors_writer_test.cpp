#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "files/files_testing.h"
#include "files/safetensors.h"

namespace octalane {
namespace {

using testing::TemporaryFolder;

std::string error_of(const Status& status) { return status ? "no error" : status.error().message; }

class SafetensorsWriting : public ::testing::Test {
 protected:
  void SetUp() override { create(8); }
  void create(uint64_t max_shard_bytes) {
    writer_.reset();
    auto created = SafetensorsWriter::create(path_, max_shard_bytes);
    ASSERT_TRUE(created) << created.error().message;
    writer_.emplace(std::move(*created));
  }
  Status add(std::string_view name, std::vector<int64_t> shape, std::string_view dtype = "U8") {
    return writer_->add_tensor(name, dtype, shape);
  }
  Status write(std::string_view bytes) { return writer_->write_tensor(std::as_bytes(std::span(bytes))); }
  std::string error(const std::string& text) const { return path_ + ": " + text; }
  /// "shard:tensor=bytes ..." of everything in the folder.
  std::string read_back() const {
    const auto set = SafetensorsSet::open(path_);
    if (!set) return set.error().message;
    std::string text;
    for (size_t i = 0; i < set->shards().size(); ++i) {
      for (const SafetensorsTensor& t : set->shards()[i].tensors())
        text +=
            fmt::format("{}:{}={} ", i + 1, t.name, std::string_view(reinterpret_cast<const char*>(t.data), t.bytes));
    }
    return text;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "";
  std::optional<SafetensorsWriter> writer_;
};

TEST_F(SafetensorsWriting, what_fits_is_one_file) {
  ASSERT_TRUE(add("a", {4}));
  ASSERT_TRUE(add("b", {2}, "F16"));
  ASSERT_TRUE(write("1234"));
  EXPECT_TRUE(write("56"));
  EXPECT_TRUE(write("78"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.safetensors")) << "before finish()";
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  EXPECT_EQ(read_back(), "1:a=1234 1:b=5678 ");
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_F(SafetensorsWriting, what_does_not_fit_is_divided_in_order) {
  for (const auto& [name, size] : {std::pair{"a", 5}, std::pair{"b", 3}, std::pair{"none", 0}, std::pair{"c", 1},
                                   std::pair{"larger", 9}, std::pair{"d", 8}})
    ASSERT_TRUE(add(name, {size}));
  for (const char* piece : {"aaaaa", "bbb", "c", "lllllllll", "dddd", "DDDD"})
    ASSERT_EQ(error_of(write(piece)), "no error");
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  EXPECT_EQ(read_back(), "1:a=aaaaa 1:b=bbb 1:none= 2:c=c 3:larger=lllllllll 4:d=ddddDDDD ");
  EXPECT_EQ(folder_.files(), 5u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model-00004-of-00004.safetensors"));
}

TEST_F(SafetensorsWriting, data_begins_at_a_multiple_of_8_bytes) {
  for (std::string name = "n"; name.size() <= 9; name += 'n') {
    create(100);
    ASSERT_TRUE(add(name, {1}));
    ASSERT_TRUE(write("x"));
    ASSERT_EQ(error_of(writer_->finish()), "no error");
    EXPECT_EQ(testing::read_bytes(folder_ / "model.safetensors").size() % 8, 1u);
  }
}

TEST_F(SafetensorsWriting, metadata_is_in_every_file_and_a_key_set_again_keeps_its_place) {
  writer_->set_metadata("b", "1");
  writer_->set_metadata("a \"\n", "naïve \x01");
  writer_->set_metadata("b", "2");
  ASSERT_TRUE(add("t", {8}));
  ASSERT_TRUE(add("u", {8}));
  ASSERT_TRUE(write("tttttttt"));
  ASSERT_TRUE(write("uuuuuuuu"));
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  const auto set = SafetensorsSet::open(path_);
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->shards().size(), 2u);
  for (const SafetensorsFile& shard : set->shards()) {
    ASSERT_EQ(shard.metadata().size(), 2u);
    EXPECT_EQ(shard.metadata()[0], SafetensorsMetadata("b", "2"));
    EXPECT_EQ(shard.metadata()[1], SafetensorsMetadata("a \"\n", "naïve \x01"));
  }
}

TEST_F(SafetensorsWriting, a_file_name_names_shards_and_index_too) {
  path_ = folder_ / "my.safetensors";
  create(4);
  ASSERT_TRUE(add("t", {4}));
  ASSERT_TRUE(add("u", {4}));
  ASSERT_TRUE(write("tttt"));
  ASSERT_TRUE(write("uuuu"));
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  EXPECT_EQ(folder_.files(), 3u);
  for (const char* name :
       {"my-00001-of-00002.safetensors", "my-00002-of-00002.safetensors", "my.safetensors.index.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / name)) << name;
}

TEST_F(SafetensorsWriting, files_of_an_earlier_model_are_replaced_or_in_the_way) {
  for (const uint64_t shard_bytes : {uint64_t{4}, uint64_t{4}}) {  // the second time over the first
    create(shard_bytes);
    ASSERT_TRUE(add("t", {4}));
    ASSERT_TRUE(add("u", {4}));
    ASSERT_TRUE(write("tttt"));
    ASSERT_TRUE(write("uuuu"));
    ASSERT_EQ(error_of(writer_->finish()), "no error");
  }
  create(100);
  ASSERT_TRUE(add("t", {4}));
  const std::string got = error_of(write("tttt"));
  EXPECT_TRUE(got.ends_with("is there from another model: it would be taken for a part of this one")) << got;
  EXPECT_EQ(folder_.files(), 3u);
}

TEST_F(SafetensorsWriting, a_failure_leaves_no_file) {
  ASSERT_TRUE(add("t", {8}));
  ASSERT_TRUE(add("u", {8}));
  ASSERT_TRUE(write("tttttttt"));
  ASSERT_TRUE(write("uuuu"));
  EXPECT_EQ(folder_.files(), 3u) << "under temporary names";
  EXPECT_EQ(error_of(writer_->finish()), error("tensor \"u\": wanted 8 bytes, got 4"));
  writer_.reset();
  EXPECT_EQ(folder_.files(), 0u);
}

TEST_F(SafetensorsWriting, when_a_file_cannot_be_renamed_none_stays) {
  ASSERT_TRUE(add("t", {8}));
  ASSERT_TRUE(add("u", {8}));
  ASSERT_TRUE(write("tttttttt"));
  ASSERT_TRUE(write("uuuuuuuu"));
  std::filesystem::create_directories(folder_ / "model-00002-of-00002.safetensors/in the way");
  EXPECT_NE(error_of(writer_->finish()).find("cannot rename"), std::string::npos);
  writer_.reset();
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_F(SafetensorsWriting, bytes_that_were_not_declared_are_refused) {
  ASSERT_TRUE(add("t", {4}));
  EXPECT_EQ(error_of(write("12345")), error("tensor \"t\": wanted 4 bytes, got 5"));
  EXPECT_EQ(error_of(write("1234")), error("tensor \"t\": wanted 4 bytes, got 5")) << "the first error stays";
}
TEST_F(SafetensorsWriting, bytes_after_the_last_tensor_are_refused) {
  ASSERT_TRUE(add("t", {4}));
  ASSERT_TRUE(write("1234"));
  EXPECT_EQ(error_of(write("5")), error("1 bytes more than the declared tensors have"));
}
TEST_F(SafetensorsWriting, a_tensor_after_the_first_bytes_is_too_late) {
  ASSERT_TRUE(add("t", {1}));
  ASSERT_TRUE(write("1"));
  EXPECT_EQ(error_of(add("u", {1})), error("tensor \"u\": declared after the first tensor was written"));
}
TEST_F(SafetensorsWriting, a_key_after_the_first_bytes_is_too_late) {
  ASSERT_TRUE(add("t", {1}));
  ASSERT_TRUE(write("1"));
  writer_->set_metadata("k", "v");
  EXPECT_EQ(error_of(writer_->finish()), error("key \"k\": set after the first tensor was written"));
}
TEST_F(SafetensorsWriting, a_name_is_declared_once) {
  ASSERT_TRUE(add("t", {1}));
  EXPECT_EQ(error_of(add("t", {1})), error("tensor \"t\": declared twice"));
}
TEST_F(SafetensorsWriting, the_name_of_the_metadata_is_no_tensor) {
  EXPECT_EQ(error_of(add("__metadata__", {1})), error("\"__metadata__\" cannot be the name of a tensor"));
}
TEST_F(SafetensorsWriting, names_are_utf8) {
  EXPECT_EQ(error_of(add("\xFF", {1})), error("tensor \"\\xff\": its name is not UTF-8"));
}
TEST_F(SafetensorsWriting, metadata_is_utf8) {
  writer_->set_metadata("k", "\xC3");
  EXPECT_EQ(error_of(writer_->finish()), error("key \"k\": it or its value is not UTF-8"));
}
TEST_F(SafetensorsWriting, types_are_those_of_the_format) {
  EXPECT_EQ(error_of(add("t", {1}, "Q4_0")), error("tensor \"t\": unknown dtype \"Q4_0\""));
}
TEST_F(SafetensorsWriting, shapes_are_checked) {
  EXPECT_EQ(error_of(add("t", {2, -1})), error("tensor \"t\": dimension -1 is negative"));
}

TEST(SafetensorsWritingTo, a_path_is_a_folder_or_a_name_that_says_what_it_is) {
  const TemporaryFolder folder;
  for (const char* name : {"new", "model.gguf", ".safetensors", "none/model.safetensors"})
    EXPECT_FALSE(SafetensorsWriter::create(folder / name)) << name;
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace octalane
