// Folders and indexes that lie, or hold something else than one model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "files/files_testing.h"
#include "files/safetensors_state.h"

namespace octalane {
namespace {

using testing::TemporaryFolder;
using testing::write_bytes;

/// A file with tensors of one byte of these names.
std::string file_of(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i)
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i > 0 ? "," : "", names[i],
                          i, i + 1);
  header += "}";
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(names.size(), 'd');
}

class SafetensorsFolder : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::vector<std::string>& tensors) {
    write_bytes(folder_ / name, file_of(tensors));
  }
  void index(const std::string& weight_map) {
    write_bytes(index_, fmt::format(R"({{"metadata": {{"total_size": 3}}, "weight_map": {}}})", weight_map));
  }
  /// The error of the folder, without its path; or the names of its tensors.
  std::string opened() const {
    const auto set = SafetensorsSet::open(path_);
    if (!set) {
      std::string text = set.error().message;
      for (size_t at = text.find(path_); at != std::string::npos; at = text.find(path_))
        text.replace(at, path_.size(), 1, '@');
      return text;
    }
    std::string names;
    for (const SafetensorsTensor& tensor : set->tensors()) names += std::string(tensor.name) + " ";
    return names;
  }
  std::string index_error(const std::string& text) const { return "@model.safetensors.index.json: " + text; }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "";
  std::string index_ = folder_ / "model.safetensors.index.json";
};

TEST_F(SafetensorsFolder, the_index_comes_before_model_safetensors_and_that_before_other_names) {
  file("other.safetensors", {"c"});
  EXPECT_EQ(opened(), "c ");
  file("model.safetensors", {"b"});
  EXPECT_EQ(opened(), "b ");
  file("shard", {"a"});
  index(R"({"a": "shard"})");
  EXPECT_EQ(opened(), "a ");
}

TEST_F(SafetensorsFolder, shards_without_an_index_are_read_when_all_are_there) {
  file("x-00002-of-00003.safetensors", {"b"});
  EXPECT_EQ(opened(), "@: shard 1 of 3 is missing");
  file("x-00001-of-00003.safetensors", {"a"});
  EXPECT_EQ(opened(), "@: shard 3 of 3 is missing");
  file("x-00003-of-00003.safetensors", {"c"});
  EXPECT_EQ(opened(), "a b c ");
  file("x-00004-of-00003.safetensors", {"d"});
  EXPECT_NE(opened(), "a b c d ");
}

TEST_F(SafetensorsFolder, files_that_are_no_series_are_refused) {
  EXPECT_EQ(opened(), "@: no .safetensors file in this folder");
  file("a.safetensors", {"a"});
  file("b.safetensors", {"b"});
  EXPECT_EQ(opened(),
            "@: \"a.safetensors\" and \"a.safetensors\" are not shards of one model, and there is no "
            "model.safetensors.index.json");
}

TEST_F(SafetensorsFolder, shards_of_two_models_are_refused) {
  file("x-00001-of-00002.safetensors", {"a"});
  file("y-00002-of-00002.safetensors", {"b"});
  EXPECT_EQ(opened(),
            "@: \"x-00001-of-00002.safetensors\" and \"y-00002-of-00002.safetensors\" are not shards of one "
            "model, and there is no model.safetensors.index.json");
}

TEST_F(SafetensorsFolder, a_tensor_in_two_shards_is_refused) {
  file("x-00001-of-00002.safetensors", {"a", "b"});
  file("x-00002-of-00002.safetensors", {"c", "a"});
  EXPECT_EQ(opened(),
            "@x-00002-of-00002.safetensors: tensor \"a\" is there twice; the first is in "
            "@x-00001-of-00002.safetensors");
}

TEST_F(SafetensorsFolder, every_tensor_is_where_the_index_says) {
  file("one", {"a", "b"});
  file("two", {"c"});
  index(R"({"a": "one", "b": "one", "c": "two"})");
  EXPECT_EQ(opened(), "a b c ");
  index(R"({"a": "one", "b": "two", "c": "two"})");
  EXPECT_EQ(opened(), index_error("tensor \"b\": wanted in \"two\", found in \"one\""));
  index(R"({"a": "one", "c": "two"})");
  EXPECT_EQ(opened(), index_error("tensor \"b\", found in \"one\", is not in its weight_map"));
  index(R"({"a": "one", "b": "one", "c": "two", "d": "two"})");
  EXPECT_EQ(opened(), index_error("tensor \"d\" is not in \"two\""));
  index(R"({"a": "one", "b": "one", "c": "three"})");
  EXPECT_EQ(opened(), "@three: cannot open: No such file or directory");
  index("{}");
  EXPECT_EQ(opened(), "");
}

TEST_F(SafetensorsFolder, a_shard_that_lies_is_named) {
  write_bytes(folder_ / "one", file_of({"a"}) + "x");
  index(R"({"a": "one"})");
  EXPECT_EQ(opened(), "@one: data section at byte 61: it has 2 bytes, the tensors only 1");
}

TEST_F(SafetensorsFolder, a_shard_that_is_no_file_is_refused) {
  std::filesystem::create_directory(folder_ / "one");
  index(R"({"a": "one"})");
  EXPECT_EQ(opened(), "@one: wanted a regular file, got something else");
}

TEST(SafetensorsSetOfOne, a_path_that_is_not_there) {
  const auto set = SafetensorsSet::open("/no/such/model");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().message, "/no/such/model: cannot open: No such file or directory");
}

std::string index_verdict(std::string_view text) {
  const testing::ExactBytes bytes(text);
  const auto map =
      parse_safetensors_index({reinterpret_cast<const char*>(bytes.span().data()), bytes.span().size()}, "index");
  if (!map) return map.error().message;
  std::string all;
  for (const auto& [tensor, file] : *map) all += fmt::format("{}={} ", tensor, file);
  return all;
}

TEST(SafetensorsIndex, the_weight_map_is_taken_and_everything_else_passed_over) {
  EXPECT_EQ(index_verdict(R"({"weight_map":{"b":"x","a":"y"}})"), "b=x a=y ");
  EXPECT_EQ(index_verdict(R"({"metadata":{"weight_map":{"a":1},"list":[[{}],null,-1.5,true,"x"]},"n":1,"s":"x","l":[],)"
                          R"("weight_map":{"a":"x"},"z":{"a":{}}})"),
            "a=x ");
  EXPECT_EQ(index_verdict(R"({"weight_map":{}})"), "");
}

TEST(SafetensorsIndex, names_that_reach_outside_the_folder_are_refused) {
  for (const char* name : {"", ".", "..", "../x", "/etc/x", "a/b", "./x", "a\\\\b", "x\\u0000y", "\\u002e\\u002e"}) {
    const std::string got = index_verdict(fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", name));
    EXPECT_NE(got.find("tensor \"t\": \""), std::string::npos) << got;
    EXPECT_TRUE(got.ends_with("\" is not the name of a file")) << got;
  }
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":"..x"}})"), "t=..x ");
}

TEST(SafetensorsIndex, anything_but_one_weight_map_of_strings_is_refused) {
  EXPECT_EQ(index_verdict(""), "index: weight_map at byte 0: not valid JSON");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":"x"})"), "index: weight_map at byte 23: not valid JSON");
  EXPECT_EQ(index_verdict("{}"), "index: it has no weight_map");
  EXPECT_EQ(index_verdict(R"("weight_map")"), "index: it has no weight_map");
  EXPECT_EQ(index_verdict(R"([{"weight_map":{"t":"x"}}])"), "index: it has no weight_map");
  EXPECT_EQ(index_verdict(R"({"weight_map":[]})"), "index: weight_map at byte 15: wanted an object, got an array");
  EXPECT_EQ(index_verdict(R"({"weight_map":null})"), "index: weight_map at byte 18: wanted an object, got null");
  EXPECT_EQ(index_verdict(R"({"weight_map":"x"})"), "index: weight_map at byte 17: wanted an object, got a string");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":null}})"),
            "index: weight_map at byte 23: tensor \"t\": wanted a string, got null");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":{}}})"),
            "index: weight_map at byte 20: tensor \"t\": wanted a string, got an object or array");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":["x"]}})"),
            "index: weight_map at byte 20: tensor \"t\": wanted a string, got an object or array");
  EXPECT_EQ(index_verdict(R"({"weight_map":{},"weight_map":{}})"), "index: weight_map at byte 29: a second weight_map");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"t":"x","t":"x"}})"),
            "index: weight_map at byte 32: tensor \"t\" is there twice");
}

TEST(SafetensorsIndex, depth_costs_no_stack) {
  constexpr size_t kDeep = 5'000'000;
  const std::string deep =
      "{\"x\":" + std::string(kDeep, '[') + std::string(kDeep, ']') + R"(,"weight_map":{"t":"x"}})";
  EXPECT_EQ(index_verdict(deep), "t=x ");
}

}  // namespace
}  // namespace octalane
