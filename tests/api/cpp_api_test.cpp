#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "octalane/octalane.hpp"

namespace {

TEST(CppApi, binds_multiplies_and_names_its_kernel) {
  const auto context = octalane::Context::create({1, nullptr, nullptr});
  ASSERT_TRUE(context) << context.error().message;
  std::array<float, 3 * 4> w{};
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i);
  const auto weights = octalane::Weights::bind(*context, "f32", std::as_bytes(std::span(w)), 3, 4);
  ASSERT_TRUE(weights) << weights.error().message;
  const float x[4] = {1, 1, 1, 1};
  float y[3] = {};
  ASSERT_TRUE(weights->multiply(*context, x, 1, 4, y, 3));
  EXPECT_EQ(y[0], 6);
  EXPECT_EQ(y[1], 22);
  EXPECT_EQ(y[2], 38);
  EXPECT_TRUE(weights->kernel(*context, 1));
}

TEST(CppApi, a_failure_carries_its_line) {
  const auto file = octalane::File::open("/nonexistent/model.gguf");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
