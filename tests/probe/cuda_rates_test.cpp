// Rates of a CUDA device as a file: what comes back, and what does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "probe/cuda_rates_file.h"

namespace octalane::test {
namespace {

class CudaRatesFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string gemm() const { return cuda::name(cuda::gemm_kernels()[0]); }
  std::string gemv() const { return cuda::name(cuda::gemv_kernels()[0]); }

  /// The text of a file with a rate of each kind.
  std::string written() {
    const cuda::Rates rates{
        .memory_bytes_per_second = 4e12,
        .kernels = {{gemm(), {.panel_seconds = 4.25e-7, .power_seconds = 4.75e-7, .fixed_seconds = 3e-6}},
                    {gemv(), {.bytes_per_second = 3.5e12, .fixed_seconds = 2e-6}}}};
    const Status done = write_cuda_rates(path_, key_, rates);
    EXPECT_TRUE(done) << done.error().message;
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = (folder_ / "deep" / "rates.json").string();
  const CudaDeviceKey key_{"NVIDIA H200", 90, 132};
};

TEST_F(CudaRatesFile, comes_back_as_it_was) {
  written();
  const auto read = read_cuda_rates(path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->device, key_);
  EXPECT_EQ(read->rates.memory_bytes_per_second, 4e12);
  ASSERT_EQ(read->rates.kernels.size(), 2u);
  EXPECT_EQ(read->rates.kernels.at(gemm()).panel_seconds, 4.25e-7);
  EXPECT_EQ(read->rates.kernels.at(gemm()).power_seconds, 4.75e-7);
  EXPECT_EQ(read->rates.kernels.at(gemm()).fixed_seconds, 3e-6);
  EXPECT_EQ(read->rates.kernels.at(gemv()).bytes_per_second, 3.5e12);
  EXPECT_EQ(read->rates.kernels.at(gemv()).fixed_seconds, 2e-6);
  EXPECT_EQ(cuda_device_key({.name = "NVIDIA H200", .capability = 90, .multiprocessors = 132}), key_);
}

TEST_F(CudaRatesFile, that_is_anything_else_is_an_error_that_names_it) {
  const std::string good = written();
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  const std::pair<const char*, std::string> hostile[] = {
      {"empty", ""},
      {"cut off", good.substr(0, good.size() / 2)},
      {"a list", "[]"},
      {"another version", changed("\"octalane_cuda_rates\": 1", "\"octalane_cuda_rates\": 2")},
      {"rates of processors", changed("\"octalane_cuda_rates\"", "\"octalane_rates\"")},
      {"no device", changed("\"device\"", "\"engine\"")},
      {"name is a number", changed("\"NVIDIA H200\"", "200")},
      {"no multiprocessors", changed("132", "0")},
      {"capability is text", changed("90", "\"9.0\"")},
      {"no memory", changed("\"memory_bytes_per_second\"", "\"memory\"")},
      {"infinite memory", changed("4000000000000.0", "1e999")},
      {"kernels is no list", changed("\"kernels\": [", "\"kernels\": 7, \"other\": [")},
      {"a row is no object", changed("\"kernels\": [", "\"kernels\": [7,")},
      {"unknown kernel", changed(gemm(), "abacus")},
      {"twice", changed(gemv(), gemm())},
      {"a gemv with panels", changed("\"bytes_per_second\": 3", "\"panel_seconds\": 3")},
      {"a gemm with bytes", changed("\"panel_seconds\"", "\"bytes_per_second\"")},
      {"no cost", changed("4.25e-07", "0.0")},
      {"negative cost", changed("4.25e-07", "-4.25e-07")},
      {"no cost at the power limit", changed("4.75e-07", "0.0")},
      {"cost at the power limit is text", changed("4.75e-07", "\"4.75e-07\"")},
      {"cost is text", changed("4.25e-07", "\"4.25e-07\"")},
      {"negative fixed cost", changed("3e-06", "-3e-06")},
      {"no fixed cost", changed("\"fixed_seconds\"", "\"fixed\"")},
      {"deep nesting", std::string(100'000, '[')},
      {"too long", good + std::string(2 << 20, ' ')},
  };
  for (const auto& [what, text] : hostile) {
    std::ofstream(path_, std::ios::binary) << text;
    const auto read = read_cuda_rates(path_);
    ASSERT_FALSE(read) << what;
    EXPECT_THAT(read.error().message, testing::StartsWith(path_ + ": ")) << what;
    EXPECT_THAT(read.error().message, testing::HasSubstr("wanted")) << what;
  }
  EXPECT_THAT(read_cuda_rates(path_ + "x").error().message, testing::HasSubstr("found none"));
}

}  // namespace
}  // namespace octalane::test
