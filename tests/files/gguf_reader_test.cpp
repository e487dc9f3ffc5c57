// What a file answers once it is open: getters, their conversions and errors, and the mapping under the tensors.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "files/files_testing.h"

namespace octalane {
namespace {

using testing::ExactBytes;
using testing::GgufBytes;
using testing::TemporaryFolder;

template <class T>
std::string error_of(const Expected<T>& result) {
  return result ? "no error" : result.error().message;
}

/// One key of each kind that the getters treat differently.
GgufBytes mixed_keys() {
  GgufBytes b(0, 9);
  b.key("small", GgufType::u8).u8(200);
  b.key("negative", GgufType::i32).u32(static_cast<uint32_t>(-5));
  b.key("huge", GgufType::u64).u64(~uint64_t{0});
  b.key("real", GgufType::f32).u32(0x3E800000);  // 0.25
  b.key("flag", GgufType::boolean).u8(1);
  b.key("text", GgufType::string).text("words");
  b.key("empty", GgufType::array).type(GgufType::f32).u64(0);
  b.key("bytes", GgufType::array).type(GgufType::u8).u64(3).u8(1).u8(2).u8(255);
  b.key("doubles", GgufType::array)
      .type(GgufType::f64)
      .u64(2)
      .u64(0x3FF0000000000000)
      .u64(0x7E37E43C8800759C);  // 1, 1e300
  return b;
}

class Getters : public ::testing::Test {
 protected:
  void SetUp() override {
    auto parsed = GgufFile::parse(bytes_.span(), "mixed");
    ASSERT_TRUE(parsed) << parsed.error().message;
    file_.emplace(*parsed);
  }
  ExactBytes bytes_{mixed_keys().bytes()};
  std::optional<GgufFile> file_;
};

TEST_F(Getters, integers_convert_between_widths_and_to_double) {
  EXPECT_EQ(file_->get<int64_t>("small"), 200);
  EXPECT_EQ(file_->get<int64_t>("negative"), -5);
  EXPECT_EQ(file_->get<double>("negative"), -5.0);
  EXPECT_EQ(file_->get<double>("real"), 0.25);
  EXPECT_EQ(file_->get<bool>("flag"), true);
  EXPECT_EQ(file_->get<std::string_view>("text"), "words");
}

TEST_F(Getters, errors_name_file_key_wanted_and_got) {
  EXPECT_EQ(error_of(file_->get<int64_t>("absent")), "mixed: key \"absent\" is missing");
  EXPECT_EQ(error_of(file_->get<int64_t>("real")), "mixed: key \"real\": wanted an int64, got f32 0.25");
  EXPECT_EQ(error_of(file_->get<int64_t>("huge")),
            "mixed: key \"huge\": wanted an int64, got u64 18446744073709551615");
  EXPECT_EQ(error_of(file_->get<int64_t>("flag")), "mixed: key \"flag\": wanted an int64, got bool");
  EXPECT_EQ(error_of(file_->get<double>("text")), "mixed: key \"text\": wanted a number, got string");
  EXPECT_EQ(error_of(file_->get<bool>("small")), "mixed: key \"small\": wanted a bool, got u8 200");
  EXPECT_EQ(error_of(file_->get<std::string_view>("bytes")), "mixed: key \"bytes\": wanted a string, got array");
}

TEST_F(Getters, get_or_falls_back_for_absent_keys_only) {
  EXPECT_EQ(file_->get_or<int64_t>("absent", 7), 7);
  EXPECT_EQ(file_->get_or<int64_t>("small", 7), 200);
  EXPECT_EQ(error_of(file_->get_or<int64_t>("text", 7)), "mixed: key \"text\": wanted an int64, got string");
}

TEST_F(Getters, arrays_convert_element_by_element) {
  EXPECT_EQ(file_->get_array<float>("empty")->size(), 0u);
  EXPECT_EQ(*file_->get_array<int64_t>("bytes"), (std::vector<int64_t>{1, 2, 255}));
  EXPECT_EQ(*file_->get_array<int32_t>("bytes"), (std::vector<int32_t>{1, 2, 255}));
  EXPECT_EQ(*file_->get_array<float>("bytes"), (std::vector<float>{1, 2, 255}));
  EXPECT_EQ(*file_->get_array<double>("doubles"), (std::vector<double>{1, 1e300}));
  EXPECT_EQ(error_of(file_->get_array<float>("doubles")),
            "mixed: key \"doubles\": element 1: wanted a float, got f64 1e+300");
  EXPECT_EQ(error_of(file_->get_array<int64_t>("doubles")),
            "mixed: key \"doubles\": element 0: wanted an int64, got f64 1");
  EXPECT_EQ(error_of(file_->get_array<int64_t>("text")), "mixed: key \"text\": wanted an array of scalars, got string");
}

TEST_F(Getters, texts_and_arrays_stay_in_the_bytes_of_the_file) {
  const auto inside = [&](const void* p) {
    const auto* byte = static_cast<const std::byte*>(p);
    return byte >= bytes_.span().data() && byte < bytes_.span().data() + bytes_.span().size();
  };
  EXPECT_TRUE(inside(file_->metadata()[0].first.data()));
  EXPECT_TRUE(inside(file_->get<std::string_view>("text")->data()));
  EXPECT_TRUE(inside(file_->find("bytes")->array.bytes.data()));
  EXPECT_EQ(file_->find("bytes")->array.bytes.size(), 3u);
}

TEST(GgufOpen, what_is_no_regular_file_is_refused_with_the_reason) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of(GgufFile::open(folder / "none")), folder / "none" + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of(GgufFile::open(folder / "")), folder / "" + ": wanted a regular file, got something else");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of(GgufFile::open(folder / "pipe")), folder / "pipe" + ": wanted a regular file, got something else");
  testing::write_bytes(folder / "nothing", "");
  EXPECT_EQ(error_of(GgufFile::open(folder / "nothing")),
            folder / "nothing" + ": header at byte 0: wanted 4 bytes, the file ends after 0");
}

TEST(GgufOpen, copies_share_the_mapping_and_outlive_the_first) {
  std::optional<GgufFile> second;
  {
    const auto first = GgufFile::open(testing::golden("tensors.v3.gguf"));
    ASSERT_TRUE(first);
    second.emplace(*first);
    EXPECT_EQ(second->tensors().data(), first->tensors().data());
  }
  EXPECT_EQ(second->find_tensor("one.f32")->bytes, 4u);
  float one = 0;
  std::memcpy(&one, second->find_tensor("one.f32")->data, sizeof one);
  EXPECT_EQ(one, 1.5f);
}

/// Pages of the mapping of `path` that are in this process' memory, in bytes.
size_t resident_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(path)) ours = true;
    if (ours && line.starts_with("Rss:")) return static_cast<size_t>(std::stoll(line.substr(4))) * 1024;
  }
  return 0;
}

TEST(GgufRelease, released_pages_leave_memory_and_read_back_the_same) {
  constexpr size_t kBytes = 4 << 20;
  const TemporaryFolder folder;
  GgufBytes b(1, 0);
  b.tensor("big", {kBytes}, 24, 0).pad();
  testing::write_bytes(folder / "big.gguf", b.bytes() + std::string(kBytes, '\x5A'));
  const auto file = GgufFile::open(folder / "big.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const GgufTensor& tensor = file->tensors()[0];
  const auto sum = [&] {
    uint64_t total = 0;
    for (uint64_t i = 0; i < tensor.bytes; ++i) total += static_cast<uint64_t>(tensor.data[i]);
    return total;
  };
  EXPECT_EQ(sum(), kBytes * 0x5A);
  if (resident_bytes(folder / "big.gguf") < kBytes) GTEST_SKIP() << "this system does not tell resident pages";
  file->release(tensor);
  EXPECT_LT(resident_bytes(folder / "big.gguf"), kBytes / 16);
  EXPECT_EQ(sum(), kBytes * 0x5A);
}

TEST(GgufRelease, bytes_of_the_caller_are_left_alone) {
  constexpr size_t kBytes = 1 << 20;
  GgufBytes b(1, 0);
  b.tensor("big", {kBytes}, 24, 0).pad();
  const ExactBytes bytes(b.bytes() + std::string(kBytes, '\x5A'));
  const auto file = GgufFile::parse(bytes.span());
  ASSERT_TRUE(file);
  file->release(file->tensors()[0]);
  EXPECT_EQ(bytes.span().back(), std::byte{0x5A});
}

}  // namespace
}  // namespace octalane
