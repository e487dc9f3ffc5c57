#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "octalane/octalane.h"

namespace {

// Two rows of 32 in Q8_0: an IEEE half scale, then 32 codes. Row r has scale 2^-r and codes of its own.
std::vector<unsigned char> q8_0_rows() {
  std::vector<unsigned char> bytes;
  for (int r = 0; r < 2; ++r) {
    bytes.push_back(0);
    bytes.push_back(r == 0 ? 0x3C : 0x38);  // 1.0, 0.5
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<unsigned char>(r == 0 ? i : -i));
  }
  return bytes;
}

struct Fixture : testing::Test {
  void SetUp() override { ASSERT_EQ(octalane_context_create(nullptr, &context), OCTALANE_OK); }
  void TearDown() override {
    octalane_weights_free(weights);
    octalane_context_free(context);
  }
  void bind() {
    const auto bytes = q8_0_rows();
    ASSERT_EQ(octalane_weights_bind(context, "q8_0", bytes.data(), bytes.size(), 2, 32, &weights), OCTALANE_OK)
        << octalane_last_error();
  }
  octalane_context* context = nullptr;
  octalane_weights* weights = nullptr;
};

using CApi = Fixture;

TEST_F(CApi, multiplies_and_leaves_what_is_not_its_own) {
  bind();
  EXPECT_EQ(octalane_weights_rows(weights), 2);
  EXPECT_EQ(octalane_weights_cols(weights), 32);
  // Small integers: exact in every lane's 16 bits. x[0] = 1, 1, ...; x[1] = 2, 0, 0, ..., 0, 4.
  std::vector<float> x(2 * 40, 1e30f), y(2 * 3, -1.0f);
  for (int k = 0; k < 32; ++k) x[k] = 1, x[40 + k] = 0;
  x[40] = 2, x[40 + 31] = 4;
  ASSERT_EQ(octalane_multiply(context, weights, x.data(), 2, 40, y.data(), 3), OCTALANE_OK) << octalane_last_error();
  EXPECT_EQ(y, (std::vector<float>{496, -248, -1, 124, -62, -1}));
}

// Two rows of 32 in 4-bit affine groups of 32, as MLX has them: codes low nibble first, bfloat16 scales and biases.
TEST_F(CApi, binds_weights_that_lie_in_several_arrays) {
  std::vector<unsigned char> codes(2 * 16);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<unsigned char>((2 * i % 16) | (2 * i + 1) % 16 << 4);
  const std::vector<uint16_t> scales{0x3F80, 0xBF00}, biases{0x4000, 0x0000};  // 1, -0.5 and 2, 0
  const void* parts[] = {codes.data(), scales.data(), biases.data()};
  const size_t bytes[] = {codes.size(), 4, 4};
  ASSERT_EQ(octalane_weights_bind_parts(context, "mlx-affine-4-g32", parts, bytes, 3, 2, 32, &weights), OCTALANE_OK)
      << octalane_last_error();
  std::vector<float> x(32, 0.0f), y(2);
  x[3] = 1, x[18] = 2;  // columns of codes 3 and 2
  ASSERT_EQ(octalane_multiply(context, weights, x.data(), 1, 32, y.data(), 2), OCTALANE_OK);
  EXPECT_EQ(y, (std::vector<float>{3 + 2 + 2 * (2 + 2), -0.5f * 3 - 0.5f * 2 * 2}));

  octalane_weights* none = nullptr;
  const auto error = [&](size_t count, size_t scale_bytes) {
    const size_t sizes[] = {codes.size(), scale_bytes, 4};
    EXPECT_EQ(octalane_weights_bind_parts(context, "mlx-affine-4-g32", parts, sizes, count, 2, 32, &none),
              OCTALANE_ERROR);
    return std::string(octalane_last_error());
  };
  EXPECT_NE(error(2, 4).find("wanted 3 parts, got 2"), std::string::npos);
  EXPECT_NE(error(3, 3).find("scales: 2 x 32 need 2 bytes a row, got 3"), std::string::npos);
}

// Two rows of 32 in one codebook of 8 columns: a word holds the four codes of a row, the first in its low byte.
TEST_F(CApi, binds_additive_codebooks) {
  const std::vector<uint32_t> codes{0x03020100, 0x00000003};
  std::vector<uint16_t> codebooks(256 * 8, 0);
  for (int i = 0; i < 8; ++i)
    codebooks[8 + i] = 0x3C00, codebooks[16 + i] = 0x4000, codebooks[24 + i] = 0x4200;  // 1 2 3
  const std::vector<uint16_t> scales{0x3C00, 0xB800};                                   // 1, -0.5
  const void* parts[] = {codes.data(), codebooks.data(), scales.data()};
  size_t bytes[] = {8, 4096, 4};
  const char* format = "additive-m1v8-row";
  ASSERT_EQ(octalane_weights_bind_parts(context, format, parts, bytes, 3, 2, 32, &weights), OCTALANE_OK)
      << octalane_last_error();
  std::vector<float> x(32, 0.0f), y(2);
  x[0] = 4, x[8] = 5, x[31] = 6;
  ASSERT_EQ(octalane_multiply(context, weights, x.data(), 1, 32, y.data(), 2), OCTALANE_OK);
  EXPECT_EQ(y, (std::vector<float>{5 * 1 + 6 * 3, -0.5f * 4 * 3}));

  octalane_weights* none = nullptr;
  const auto error = [&](int64_t rows, int64_t cols) {
    EXPECT_EQ(octalane_weights_bind_parts(context, format, parts, bytes, 3, rows, cols, &none), OCTALANE_ERROR);
    return std::string(octalane_last_error());
  };
  EXPECT_NE(error(3, 32).find("codes: 3 x 32 need 4 bytes a row, got 8"), std::string::npos);
  EXPECT_NE(error(int64_t{1} << 62, 32).find("codes: "), std::string::npos);
  EXPECT_NE(error(2, 48).find("multiple of 32 columns"), std::string::npos);
  bytes[1] = 4095;
  EXPECT_NE(error(2, 32).find("codebooks: 2 x 32 need 4096 bytes, got 4095"), std::string::npos);
  bytes[1] = 4096;
  codebooks[2047] = 0x7C00;
  EXPECT_NE(error(2, 32).find("codebooks: wanted finite values, got inf"), std::string::npos);
  EXPECT_EQ(octalane_weights_bind(context, format, codes.data(), 8, 2, 32, &none), OCTALANE_ERROR);
  EXPECT_NE(std::string(octalane_last_error()).find("wanted their parts"), std::string::npos);
}

TEST_F(CApi, names_the_kernel) {
  bind();
  const char* kernel = nullptr;
  ASSERT_EQ(octalane_weights_kernel(context, weights, 512, &kernel), OCTALANE_OK);
  EXPECT_EQ(std::string(kernel).rfind("bf16_gemm_", 0), 0u) << kernel;
}

TEST_F(CApi, a_plan_file_decides_lanes_by_name) {
  const std::string path = testing::TempDir() + "octalane_c_api_plan_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << R"({"lanes": [{"tensors": "q8_?", "lane": "s8.group"}]})";
  const auto kernel_of = [&](const char* lane) {
    const octalane_options options{0, nullptr, lane, nullptr, path.c_str()};
    octalane_context* planned = nullptr;
    EXPECT_EQ(octalane_context_create(&options, &planned), OCTALANE_OK) << octalane_last_error();
    const auto bytes = q8_0_rows();
    octalane_weights* bound = nullptr;  // bound by the name of its format
    EXPECT_EQ(octalane_weights_bind(planned, "q8_0", bytes.data(), bytes.size(), 2, 32, &bound), OCTALANE_OK);
    const char* kernel = "";
    EXPECT_EQ(octalane_weights_kernel(planned, bound, 512, &kernel), OCTALANE_OK);
    octalane_weights_free(bound);
    octalane_context_free(planned);
    return std::string(kernel);
  };
  EXPECT_EQ(kernel_of("auto").rfind("s8.group_gemm_", 0), 0u) << kernel_of("auto");
  EXPECT_EQ(kernel_of("bf16").rfind("bf16_gemm_", 0), 0u) << "the stock lane by name turns it off";
  std::ofstream(path) << "{}";
  const octalane_options options{0, nullptr, nullptr, nullptr, path.c_str()};
  octalane_context* none = nullptr;
  EXPECT_EQ(octalane_context_create(&options, &none), OCTALANE_ERROR);
  EXPECT_EQ(std::string(octalane_last_error()), path + ": lanes: wanted a list, got something else");
  std::remove(path.c_str());
}

TEST_F(CApi, a_context_can_force_its_path) {
  octalane_context* forced = nullptr;
  const octalane_options options{1, "scalar", "s8.group"};
  ASSERT_EQ(octalane_context_create(&options, &forced), OCTALANE_OK) << octalane_last_error();
  const auto bytes = q8_0_rows();
  ASSERT_EQ(octalane_weights_bind(forced, "q8_0", bytes.data(), bytes.size(), 2, 32, &weights), OCTALANE_OK);
  const char* kernel = nullptr;
  ASSERT_EQ(octalane_weights_kernel(forced, weights, 1, &kernel), OCTALANE_OK);
  EXPECT_EQ(std::string(kernel).rfind("s8.group_", 0), 0u) << kernel;
  EXPECT_NE(std::string(kernel).find("_scalar"), std::string::npos) << kernel;
  octalane_context_free(forced);
}

TEST_F(CApi, every_mistake_has_its_line) {
  const auto bytes = q8_0_rows();
  const auto expect = [](octalane_status status, const char* words) {
    EXPECT_EQ(status, OCTALANE_ERROR) << words;
    EXPECT_NE(std::string(octalane_last_error()).find(words), std::string::npos) << octalane_last_error();
    EXPECT_EQ(std::string(octalane_last_error()).find('\n'), std::string::npos);
  };
  octalane_weights* none = nullptr;
  expect(octalane_weights_bind(context, "q9_9", bytes.data(), bytes.size(), 2, 32, &none), "q9_9");
  expect(octalane_weights_bind(context, "q8_0", bytes.data(), bytes.size() - 1, 2, 32, &none), "67 bytes");
  expect(octalane_weights_bind(context, "q8_0", bytes.data(), bytes.size(), 2, 33, &none), "33");
  expect(octalane_weights_bind(context, "q8_0", bytes.data(), bytes.size(), INT64_MAX, INT64_MAX - 31, &none), "q8_0");
  expect(octalane_weights_bind(context, "q8_0", bytes.data(), bytes.size(), -1, 32, &none), "-1");
  expect(octalane_weights_bind(nullptr, "q8_0", bytes.data(), bytes.size(), 2, 32, &none), "NULL");
  EXPECT_EQ(none, nullptr);

  octalane_file* file = nullptr;
  expect(octalane_file_open("/nonexistent/model.gguf", &file), "/nonexistent/model.gguf");
  octalane_context* other = nullptr;
  const octalane_options unknown_isa{1, "mmx", nullptr}, unknown_lane{1, nullptr, "s4"}, negative{-1, nullptr, nullptr};
  expect(octalane_context_create(&unknown_isa, &other), "mmx");
  expect(octalane_context_create(&unknown_lane, &other), "s4");
  expect(octalane_context_create(&negative, &other), "-1");

  bind();
  float x[32] = {}, y[2] = {};
  expect(octalane_multiply(context, weights, x, 1, 32, y, 1), "output stride");
  expect(octalane_multiply(context, weights, nullptr, 1, 32, y, 2), "NULL");
  EXPECT_EQ(octalane_multiply(context, weights, nullptr, 0, 32, nullptr, 2), OCTALANE_OK);
}

TEST_F(CApi, errors_belong_to_the_thread_that_made_them) {
  octalane_file* file = nullptr;
  ASSERT_EQ(octalane_file_open("/nonexistent/a", &file), OCTALANE_ERROR);
  std::thread([] { EXPECT_STREQ(octalane_last_error(), ""); }).join();
  EXPECT_NE(std::strstr(octalane_last_error(), "/nonexistent/a"), nullptr);
}

}  // namespace
