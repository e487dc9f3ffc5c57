// bench: the receipts are whole and consistent. No figure is judged here.
#include <algorithm>
#include <map>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

void expect_ordered(const Json& spread) {
  EXPECT_GT(spread["min"].get<double>(), 0);
  EXPECT_LE(spread["min"].get<double>(), spread["median"].get<double>());
  EXPECT_LE(spread["median"].get<double>(), spread["max"].get<double>());
}

void expect_machine(const Json& machine) {
  for (const char* key : {"cpu", "flags", "cores", "threads", "last_level_cache_bytes", "compiler", "version", "commit",
                          "uncommitted_changes", "load_average_1min"}) {
    EXPECT_TRUE(machine.contains(key)) << key;
  }
  EXPECT_EQ(machine["commit"].is_null(), machine["uncommitted_changes"].is_null());
  if (!machine["commit"].is_null()) {
    EXPECT_EQ(machine["commit"].get<std::string>().find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(machine["commit"].get<std::string>().size(), 40u);
  }
}

/// The kernel that ran is in none of the refusals, and has a reason; each refusal says why.
void expect_kernel_accounted_for(const Json& cell) {
  EXPECT_NE(cell["reason"], "");
  EXPECT_FALSE(cell["refused"].empty());
  for (const Json& refusal : cell["refused"]) {
    EXPECT_NE(refusal["kernel"], cell["kernel"]);
    EXPECT_NE(refusal["why"], "");
  }
}

/// Shares are what they say they are of. A machine may lack a probe loop or a read loop: then they are null.
void expect_shares(const Json& cell) {
  if (cell["of_read_rate"].is_null()) {
    EXPECT_EQ(cell["read_gbps"], nullptr);
  } else {
    const double gbps = cell["of_read_rate"].get<double>() * cell["read_gbps"].get<double>();
    EXPECT_NEAR(gbps, cell["gbps"].get<double>(), 1e-9 * gbps);
  }
  EXPECT_EQ(cell["of_peak"].is_null(), !cell.contains("peak"));
  if (cell["of_peak"].is_null()) return;
  const Json& peak = cell["peak"];
  expect_ordered(peak["loaded_tops"]);
  EXPECT_NE(peak["instruction"], "");
  const double ops = cell["tops"].get<double>() * cell["ms"]["median"].get<double>();
  std::vector<double> shares;
  for (size_t i = 0; i < cell["samples_ms"].size(); ++i) {
    const Json& ms = cell["threads"] == 1 ? cell["cpu_ms"] : cell["samples_ms"];
    shares.push_back(ops / ms.at(i).get<double>() / peak["samples_tops"].at(i).get<double>());
  }
  std::ranges::sort(shares);
  EXPECT_NEAR(cell["of_peak"].get<double>(), shares[shares.size() / 2], 1e-9 * shares[0]);
}

TEST(BenchGemm, every_cell_is_a_receipt) {
  const Json result = octalane_json({"bench", "gemm", "--format", "q4_0,q8_0", "--rows", "33", "--cols", "96",
                                     "--tokens", "1,7", "--vs", "s8.group", "--repeats", "3"});
  for (const char* key : {"command", "machine", "seed", "input", "timed", "cache", "sampling", "memory_gbps"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_TRUE(result.at("ablation").is_null());
  expect_machine(result["machine"]);
  EXPECT_EQ(result["sampling"]["repeats"], 3);
  EXPECT_GT(result["sampling"]["warm_up_seconds"].get<double>(), 0);
  ASSERT_EQ(result["cells"].size(), 2u * 2u * 2u);
  for (const Json& cell : result["cells"]) {
    EXPECT_EQ(cell["device"], "cpu");
    EXPECT_EQ(cell["rows"], 33);
    EXPECT_EQ(cell["cols"], 96);
    expect_shares(cell);
    EXPECT_EQ(cell["isa_asked"], nullptr);
    EXPECT_TRUE(cell["lane_asked"] == "auto" || cell["lane_asked"] == cell["staged"]) << cell["lane_asked"];
    expect_kernel_accounted_for(cell);
    EXPECT_EQ(cell["samples_ms"].size(), 3u);
    EXPECT_EQ(cell["involuntary_switches"].size(), 3u);
    EXPECT_EQ(cell["cpu_ms"].size(), 3u);
    for (const Json& switches : cell["involuntary_switches"]) EXPECT_GE(switches.get<int64_t>(), 0);
    EXPECT_LE(cell["disturbed_samples_ms"].size(), 3u * (result["sampling"]["most_attempts"].get<size_t>() - 1));
    EXPECT_GE(cell["warm_up_calls"].get<int>(), 1);
    EXPECT_EQ(cell["copies"], 1);
    expect_ordered(cell["ms"]);
    const double seconds = 1e-3 * cell["ms"]["median"].get<double>(), tokens = cell["tokens"].get<double>();
    EXPECT_NEAR(cell["tops"].get<double>() * seconds, 2e-12 * tokens * 33 * 96, 1e-15);
    EXPECT_LE(cell["kernel_error"].get<double>(), 1e-6);
    EXPECT_GT(cell["total_error"].get<double>(), cell["kernel_error"].get<double>());
  }
  ASSERT_EQ(result["pairs"].size(), 4u);
  for (const Json& pair : result["pairs"]) expect_ordered(pair["vs_speedup"]);
}

TEST(BenchGemm, tells_what_encoding_weights_again_costs_them) {
  const Json cells =
      octalane_json({"bench", "gemm", "--format", "q4_k", "--rows", "16", "--cols", "512", "--tokens", "2", "--repeats",
                     "1", "--isa", "scalar", "--lane", "s8.row", "--vs", "s8.group"})["cells"];
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_GT(cells[0]["weight_error"].get<double>(), 1e-4);
  EXPECT_LT(cells[0]["weight_error"].get<double>(), 2e-2);
  EXPECT_EQ(cells[1]["weight_error"], nullptr);
}

TEST(BenchGemm, tells_what_int8_codebooks_cost_the_weights) {
  const Json cells =
      octalane_json({"bench", "gemm", "--format", "additive-m2v8-g128", "--rows", "16", "--cols", "512", "--tokens",
                     "2", "--repeats", "1", "--isa", "scalar", "--lane", "s8.group", "--vs", "bf16"})["cells"];
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_GT(cells[0]["weight_error"].get<double>(), 1e-4);
  EXPECT_LT(cells[0]["weight_error"].get<double>(), 2e-2);
  EXPECT_EQ(cells[1]["weight_error"], nullptr);
}

TEST(BenchGemm, says_what_activations_were_multiplied_and_what_far_values_cost) {
  std::map<std::string, double> errors;
  for (const char* kind : {"gaussian", "heavy", "outlier"}) {
    const Json receipt =
        octalane_json({"bench", "gemm", "--format", "q8_0", "--rows", "64", "--cols", "1024", "--tokens", "4",
                       "--repeats", "1", "--threads", "1", "--lane", "s8.group", "--activations", kind});
    EXPECT_EQ(receipt["activations"], kind);
    errors[kind] = receipt["cells"].at(0)["total_error"].get<double>();
  }
  EXPECT_GT(errors["heavy"], errors["gaussian"]);
}

TEST(BenchGemm, prints_a_table_and_refuses_what_does_not_fit) {
  const Outcome outcome = octalane(
      {"bench", "gemm", "--format", "q4_k", "--rows", "16", "--cols", "256", "--tokens", "2", "--repeats", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("kernel error"), std::string::npos);
  expect_error(octalane({"bench", "gemm", "--format", "q4_k", "--rows", "16", "--cols", "96"}), 1, "multiple of 256");
}

TEST(BenchGemm, cold_copies_are_larger_than_the_last_level_cache) {
  const Arguments command{"bench", "gemm",     "--format", "q8_0",      "--rows", "512",   "--cols",
                          "2048",  "--tokens", "1",        "--repeats", "1",      "--isa", "scalar"};
  const Json warm = octalane_json(command);
  const int64_t cache = warm["machine"]["last_level_cache_bytes"];
  EXPECT_EQ(warm["cells"][0]["isa_asked"], "scalar");
  EXPECT_EQ(warm["cells"][0]["of_peak"], nullptr) << "no loop probes scalar code";
  EXPECT_EQ(warm["cells"][0]["rotated_bytes"], warm["cells"][0]["packed_bytes"]);
  if (cache == 0 || cache > (64 << 20)) GTEST_SKIP() << "the copies would fill " << 2 * cache << " bytes";
  Arguments cold = command;
  cold.push_back("--cold");
  EXPECT_GE(octalane_json(cold)["cells"][0]["rotated_bytes"].get<int64_t>(), 2 * cache);
}

TEST(BenchGemm, takes_turns_before_each_step) {
  const Arguments command{"bench",    "gemm", "--format",  "q4_0", "--rows", "16",     "--cols",       "64",
                          "--tokens", "1,3",  "--repeats", "2",    "--isa",  "scalar", "--take-turns", "--json"};
  const int steps = 1 + 2 * (1 + 2);  // weights; for each number of tokens the check and two rounds of samples
  const Outcome all = octalane(command, std::string(steps, '\n'));
  EXPECT_EQ(all.exit_code, 0) << all.err;
  std::string ready;
  for (int i = 0; i < steps; ++i) ready += "ready\n";
  EXPECT_EQ(all.err, ready);
  EXPECT_EQ(Json::parse(all.out)["cells"].size(), 2u);

  const Outcome short_of_one = octalane(command, std::string(steps - 1, '\n'));
  EXPECT_EQ(short_of_one.exit_code, 1);
  EXPECT_EQ(short_of_one.err, ready + "octalane: error: standard input: wanted a line for each turn, got its end\n");
  EXPECT_EQ(short_of_one.out, "");
}

TEST(BenchModel, has_a_row_for_each_length) {
  const Arguments command{"bench", "model",      "-m", tiny_model(), "--prompt",
                          "4,32",  "--generate", "3",  "--repeats",  "3"};
  const Json result = octalane_json(command);
  expect_machine(result["machine"]);
  EXPECT_EQ(result["lane_asked"], "auto");
  EXPECT_EQ(result["isa_asked"], nullptr);
  EXPECT_EQ(result["repeats"], 3);
  ASSERT_FALSE(result["kernels"].empty());
  for (const Json& kernel : result["kernels"]) EXPECT_GT(kernel["ops"].get<double>(), 0);
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

TEST(BenchGemm, takes_names_of_kernels_of_a_device_alone) {
  expect_error(octalane({"bench", "gemm", "--format", "q4_0", "--rows", "32", "--cols", "32", "--kernel", "_mma-"}), 1,
               "--kernel is for the kernels of --device cuda");
}

}  // namespace
}  // namespace octalane::cli_test
