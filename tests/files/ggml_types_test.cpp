#include "files/ggml_types.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "files/files_testing.h"

namespace octalane {
namespace {

using testing::golden;

TEST(GgmlTypes, are_those_of_ggml) {
  const nlohmann::json expected = nlohmann::json::parse(testing::read_bytes(golden("ggml_types.json")));
  ASSERT_EQ(ggml_types().size(), expected.size());
  for (const nlohmann::json& row : expected) {
    const GgmlType* type = find_ggml_type(row["id"]);
    ASSERT_NE(type, nullptr) << row;
    EXPECT_EQ(type->name, row["name"]);
    EXPECT_EQ(type->block, row["block"]) << row;
    EXPECT_EQ(type->block_bytes, row["bytes"]) << row;
    EXPECT_EQ(ggml_type_name(row["id"]), row["name"]);
  }
}

TEST(GgmlTypes, unknown_and_withdrawn_numbers_have_words) {
  for (const uint32_t id : {4u, 31u, 43u, 77u, 0xFFFFFFFFu}) EXPECT_EQ(find_ggml_type(id), nullptr) << id;
  EXPECT_EQ(ggml_type_name(77), "type 77");
  EXPECT_EQ(ggml_type_name(31), "type 31 (q4_0_4_4, withdrawn from ggml)");
}

TEST(GgmlTypes, bytes_of_a_tensor) {
  const GgmlType& f32 = *find_ggml_type(0);
  const GgmlType& q4_k = *find_ggml_type(12);
  const auto bytes = [](const GgmlType& type, std::vector<int64_t> shape) { return ggml_tensor_bytes(type, shape); };
  EXPECT_EQ(bytes(f32, {}), 4u);
  EXPECT_EQ(bytes(f32, {3, 5}), 60u);
  EXPECT_EQ(bytes(f32, {2, 3, 4, 5}), 480u);
  EXPECT_EQ(bytes(q4_k, {512, 3}), 864u);
  EXPECT_EQ(bytes(q4_k, {0, 3}), 0u);
  EXPECT_EQ(bytes(q4_k, {512, 0, 7}), 0u);
}

TEST(GgmlTypes, impossible_shapes_are_refused_with_the_rule) {
  const GgmlType& f32 = *find_ggml_type(0);
  const GgmlType& q4_k = *find_ggml_type(12);
  const auto why = [](const GgmlType& type, std::vector<int64_t> shape) {
    const auto bytes = ggml_tensor_bytes(type, shape);
    return bytes ? "" : bytes.error().message;
  };
  constexpr int64_t kHalf = int64_t{1} << 32;
  EXPECT_EQ(why(q4_k, {100}), "100 columns is not a multiple of 256, the block of q4_k");
  EXPECT_EQ(why(q4_k, {}), "1 columns is not a multiple of 256, the block of q4_k");
  EXPECT_EQ(why(f32, {1, 1, 1, 1, 1}), "wanted at most 4 dimensions, got 5");
  EXPECT_EQ(why(f32, {4, -1}), "dimension -1 is negative");
  EXPECT_EQ(why(f32, {kHalf, kHalf}), "the product of its dimensions overflows");
  EXPECT_EQ(why(f32, {0, kHalf, kHalf}), "the product of its dimensions overflows");
  EXPECT_EQ(why(f32, {kHalf, kHalf / 4}), "its size in bytes overflows");
}

}  // namespace
}  // namespace octalane
