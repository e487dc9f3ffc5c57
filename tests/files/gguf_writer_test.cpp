#include <gtest/gtest.h>

#include <cmath>

#include "files/files_testing.h"

namespace octalane {
namespace {

using testing::golden;
using testing::TemporaryFolder;

std::string error_of(const Status& status) { return status ? "no error" : status.error().message; }

class Writer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = GgufWriter::create(path_);
    ASSERT_TRUE(created) << created.error().message;
    writer_.emplace(std::move(*created));
  }
  Status add(std::string_view name, uint32_t type, std::vector<int64_t> shape) {
    return writer_->add_tensor(name, type, shape);
  }
  Status write(std::string_view bytes) { return writer_->write_tensor(std::as_bytes(std::span(bytes))); }
  std::string error(const std::string& text) const { return path_ + ": " + text; }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "out.gguf";
  std::optional<GgufWriter> writer_;
};

TEST_F(Writer, what_is_set_key_by_key_is_the_file_that_the_gguf_package_writes) {
  const auto expected = GgufFile::open(golden("built.v3.gguf"));
  ASSERT_TRUE(expected);
  writer_->set("general.architecture", GgufType::string, std::string_view("golden"));
  writer_->set("count", GgufType::u32, int64_t{7});
  writer_->set("signed", GgufType::i64, int64_t{-7});
  writer_->set("real", GgufType::f32, 0.25);
  writer_->set("flag", GgufType::boolean, true);
  writer_->set("text", GgufType::string, std::string_view("some words"));
  writer_->set_array("words", std::vector<std::string>{"a", "", "longer"});
  writer_->set_array("numbers", std::vector<int32_t>{3, -1, 2});
  writer_->set_array("reals", std::vector<float>{0.5f, -2.0f});
  ASSERT_EQ(error_of(add("weights", 2, {32, 2})), "no error");
  ASSERT_EQ(error_of(add("bias", 0, {3})), "no error");
  const GgufTensor* weights = expected->find_tensor("weights");
  const std::string_view bytes(reinterpret_cast<const char*>(weights->data), weights->bytes);
  EXPECT_EQ(error_of(write(bytes.substr(0, 5))), "no error");
  EXPECT_EQ(error_of(write(bytes.substr(5))), "no error");
  const std::vector<float> bias{1, 2, 3};
  EXPECT_TRUE(writer_->write_tensor(std::as_bytes(std::span(bias))));
  EXPECT_EQ(error_of(writer_->finish()), "no error");
  EXPECT_TRUE(testing::read_bytes(path_) == testing::read_bytes(golden("built.v3.gguf")));
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_F(Writer, a_key_set_again_keeps_its_place_and_gets_the_new_value) {
  writer_->set("a", GgufType::u8, uint64_t{1});
  writer_->set("b", GgufType::u8, uint64_t{2});
  writer_->set("a", GgufType::string, std::string_view("new"));
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  const auto file = GgufFile::open(path_);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->metadata().size(), 2u);
  EXPECT_EQ(file->metadata()[0].first, "a");
  EXPECT_EQ(file->get<std::string_view>("a"), "new");
}

TEST_F(Writer, values_keep_every_bit_that_their_type_has) {
  writer_->set("nan", GgufType::f32, std::nan(""));
  writer_->set("inf", GgufType::f32, -INFINITY);
  writer_->set("zero", GgufType::f64, -0.0);
  writer_->set("most", GgufType::u64, ~uint64_t{0});
  writer_->set("text", GgufType::string, std::string_view("\xFF\0\n", 3));
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  const auto file = GgufFile::open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(std::isnan(*file->get<double>("nan")));
  EXPECT_EQ(*file->get<double>("inf"), -INFINITY);
  EXPECT_TRUE(std::signbit(*file->get<double>("zero")));
  EXPECT_EQ(std::get<uint64_t>(file->find("most")->scalar), ~uint64_t{0});
  EXPECT_EQ(*file->get<std::string_view>("text"), std::string_view("\xFF\0\n", 3));
}

TEST_F(Writer, tensors_follow_the_alignment_that_is_set) {
  writer_->set("general.alignment", GgufType::u32, uint64_t{64});
  ASSERT_TRUE(add("a", 0, {1}));
  ASSERT_TRUE(add("none", 0, {0, 4}));
  ASSERT_TRUE(add("b", 0, {2}));
  ASSERT_TRUE(write("1234"));
  ASSERT_TRUE(write("abcdefgh"));
  ASSERT_EQ(error_of(writer_->finish()), "no error");
  const auto file = GgufFile::open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->file_bytes() % 64, 0u);
  EXPECT_EQ(file->find_tensor("b")->data - file->find_tensor("a")->data, 64);
  EXPECT_EQ(std::memcmp(file->find_tensor("b")->data, "abcdefgh", 8), 0);
}

TEST_F(Writer, values_that_do_not_fit_fail_the_next_step_and_every_later_one) {
  writer_->set("byte", GgufType::u8, uint64_t{256});
  const std::string wanted = error("key \"byte\": the value does not fit the type u8");
  EXPECT_EQ(error_of(add("t", 0, {1})), wanted);
  EXPECT_EQ(error_of(write("1234")), wanted);
  EXPECT_EQ(error_of(writer_->finish()), wanted);
}

TEST(WriterValues, only_what_the_type_can_hold_is_taken) {
  const TemporaryFolder folder;
  const auto fits = [&](GgufType type, GgufScalar value) {
    auto writer = GgufWriter::create(folder / "x.gguf");
    writer->set("k", type, value);
    return writer->finish().has_value();
  };
  EXPECT_TRUE(fits(GgufType::i8, int64_t{-128}));
  EXPECT_FALSE(fits(GgufType::i8, int64_t{-129}));
  EXPECT_FALSE(fits(GgufType::u32, int64_t{-1}));
  EXPECT_FALSE(fits(GgufType::u32, 1.0));
  EXPECT_FALSE(fits(GgufType::f32, 1e39));
  EXPECT_TRUE(fits(GgufType::f64, 1e39));
  EXPECT_TRUE(fits(GgufType::f64, uint64_t{3}));
  EXPECT_FALSE(fits(GgufType::boolean, uint64_t{1}));
  EXPECT_FALSE(fits(GgufType::string, uint64_t{1}));
  EXPECT_FALSE(fits(GgufType::u8, std::string_view("1")));
  EXPECT_FALSE(fits(GgufType::array, uint64_t{1}));
}

TEST_F(Writer, tensors_that_no_reader_would_take_are_refused) {
  ASSERT_TRUE(add("t", 0, {1}));
  EXPECT_EQ(error_of(add("t", 0, {1})), error("tensor \"t\": declared twice"));
}
TEST_F(Writer, tensor_names_have_the_length_that_ggml_takes) {
  EXPECT_TRUE(add(std::string(63, 'n'), 0, {1}));
  EXPECT_EQ(error_of(add(std::string(64, 'n'), 0, {1})),
            error("tensor \"" + std::string(64, 'n') + "\": wanted a name of 1 to 63 bytes, got 64"));
}
TEST_F(Writer, tensor_types_and_shapes_are_checked) {
  EXPECT_EQ(error_of(add("t", 77, {1})), error("tensor \"t\": unknown ggml type 77"));
}
TEST_F(Writer, a_row_is_whole_blocks) {
  EXPECT_EQ(error_of(add("t", 2, {33})), error("tensor \"t\": 33 columns is not a multiple of 32, the block of q4_0"));
}
TEST_F(Writer, an_alignment_that_is_no_power_of_two_is_refused) {
  writer_->set("general.alignment", GgufType::u32, uint64_t{48});
  EXPECT_EQ(error_of(writer_->finish()), error("key \"general.alignment\": wanted a u32 that is a power of two"));
}
TEST_F(Writer, a_tensor_of_too_many_bytes_is_refused) {
  ASSERT_TRUE(add("t", 0, {2}));
  ASSERT_TRUE(write("1234"));
  EXPECT_EQ(error_of(write("56789")), error("tensor \"t\": wanted 8 bytes, got 9"));
}
TEST_F(Writer, bytes_after_the_last_tensor_are_refused) {
  ASSERT_TRUE(add("t", 0, {1}));
  ASSERT_TRUE(write("1234"));
  EXPECT_EQ(error_of(write("5")), error("1 bytes more than the declared tensors have"));
}
TEST_F(Writer, a_tensor_of_too_few_bytes_is_refused_and_leaves_no_file) {
  ASSERT_TRUE(add("t", 0, {2}));
  ASSERT_TRUE(write("1234"));
  EXPECT_EQ(error_of(writer_->finish()), error("tensor \"t\": wanted 8 bytes, got 4"));
  writer_.reset();
  EXPECT_EQ(folder_.files(), 0u);
}
TEST_F(Writer, what_comes_after_the_first_tensor_bytes_is_too_late) {
  ASSERT_TRUE(add("t", 0, {1}));
  ASSERT_TRUE(write("1234"));
  EXPECT_EQ(error_of(add("u", 0, {1})), error("tensor \"u\": declared after the first tensor was written"));
}
TEST_F(Writer, a_key_after_the_first_tensor_bytes_is_too_late) {
  ASSERT_TRUE(add("t", 0, {1}));
  ASSERT_TRUE(write("1234"));
  writer_->set("k", GgufType::u8, uint64_t{1});
  EXPECT_EQ(error_of(writer_->finish()), error("key \"k\": set after the first tensor was written"));
}

}  // namespace
}  // namespace octalane
