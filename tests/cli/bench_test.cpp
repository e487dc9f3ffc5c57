// bench: the receipts are whole and consistent. No figure is judged here.
#include <algorithm>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

void expect_ordered(const Json& spread) {
  EXPECT_GT(spread["min"].get<double>(), 0);
  EXPECT_LE(spread["min"].get<double>(), spread["median"].get<double>());
  EXPECT_LE(spread["median"].get<double>(), spread["max"].get<double>());
}

TEST(BenchGemm, every_cell_is_a_receipt) {
  const Json result = octalane_json({"bench", "gemm", "--format", "q4_0,q8_0", "--rows", "33", "--cols", "96",
                                     "--tokens", "1,7", "--vs", "s8.group", "--repeats", "3"});
  for (const char* key : {"command", "machine", "seed", "cache", "repeats"}) EXPECT_TRUE(result.contains(key)) << key;
  for (const char* key : {"cpu", "flags", "cores", "threads", "compiler", "version"}) {
    EXPECT_TRUE(result["machine"].contains(key)) << key;
  }
  ASSERT_EQ(result["cells"].size(), 2u * 2u * 2u);
  for (const Json& cell : result["cells"]) {
    EXPECT_EQ(cell["device"], "cpu");
    EXPECT_EQ(cell["rows"], 33);
    EXPECT_EQ(cell["cols"], 96);
    EXPECT_EQ(cell["of_peak"], nullptr) << "no peak has been measured";
    EXPECT_EQ(cell["samples_ms"].size(), 3u);
    expect_ordered(cell["ms"]);
    const double seconds = 1e-3 * cell["ms"]["median"].get<double>(), tokens = cell["tokens"].get<double>();
    EXPECT_NEAR(cell["tops"].get<double>() * seconds, 2e-12 * tokens * 33 * 96, 1e-15);
    EXPECT_LE(cell["kernel_error"].get<double>(), 1e-6);
    EXPECT_GT(cell["total_error"].get<double>(), cell["kernel_error"].get<double>());
  }
  ASSERT_EQ(result["pairs"].size(), 4u);
  for (const Json& pair : result["pairs"]) expect_ordered(pair["vs_speedup"]);
}

TEST(BenchGemm, prints_a_table_and_refuses_what_does_not_fit) {
  const Outcome outcome = octalane(
      {"bench", "gemm", "--format", "q4_k", "--rows", "16", "--cols", "256", "--tokens", "2", "--repeats", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("kernel error"), std::string::npos);
  expect_error(octalane({"bench", "gemm", "--format", "q4_k", "--rows", "16", "--cols", "96"}), 1, "multiple of 256");
}

TEST(BenchModel, has_a_row_for_each_length) {
  const Arguments command{"bench", "model",      "-m", tiny_model(), "--prompt",
                          "4,32",  "--generate", "3",  "--repeats",  "3"};
  const Json result = octalane_json(command);
  ASSERT_EQ(result["rows"].size(), 3u);
  for (const Json& row : result["rows"]) {
    expect_ordered(row["tokens_per_second"]);
    EXPECT_EQ(row["samples_seconds"].size(), 3u);
    std::vector<double> seconds = row["samples_seconds"];
    std::ranges::sort(seconds);
    EXPECT_NEAR(row["tokens_per_second"]["median"].get<double>() * seconds[1], row["tokens"].get<double>(), 1e-9);
  }
  const auto printed = [&](const std::string& form) {
    Arguments all = command;
    all.insert(all.end(), {"-o", form});
    return octalane(all).out;
  };
  EXPECT_EQ(printed("md").rfind("| test |", 0), 0u);
  EXPECT_EQ(printed("csv").rfind("test,tokens/s,", 0), 0u);
  EXPECT_EQ(Json::parse(printed("json"))["rows"].size(), 3u);
  expect_error(octalane({"bench", "model", "-m", tiny_model(), "--prompt", "513"}), 1, "wanted at most 512");
}

}  // namespace
}  // namespace octalane::cli_test
