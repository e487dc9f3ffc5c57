// probe: the document is whole and consistent. No figure is judged.
#include <cstdlib>
#include <map>
#include <optional>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

const Arguments kQuick{"probe", "--repeats", "3", "--sample-ms", "1", "--threads", "2", "--format", "q4_0"};

/// Rates go to a cache of this test.
class Probe : public testing::Test {
 protected:
  Probe() : before_(cache_variable()) { ::setenv("XDG_CACHE_HOME", (scratch() / "probe-cache").c_str(), 1); }
  ~Probe() override {
    std::filesystem::remove_all(scratch() / "probe-cache");
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }

 private:
  static std::optional<std::string> cache_variable() {
    const char* value = std::getenv("XDG_CACHE_HOME");
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  }
  std::optional<std::string> before_;
};

void expect_ordered(const Json& spread) {
  EXPECT_GT(spread["min"].get<double>(), 0);
  EXPECT_LE(spread["min"].get<double>(), spread["median"].get<double>());
  EXPECT_LE(spread["median"].get<double>(), spread["max"].get<double>());
}

TEST_F(Probe, has_every_instruction_pure_loaded_and_drained_on_one_and_all_threads) {
  const Json document = octalane_json(kQuick);
  for (const char* key : {"command", "machine", "rates", "ratios", "memory_gbps"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  std::map<int, int> by_threads;
  for (const Json& rate : document["rates"]) {
    SCOPED_TRACE(rate["instruction"].get<std::string>());
    ++by_threads[rate["threads"].get<int>()];
    expect_ordered(rate["tops"]);
    expect_ordered(rate["loaded_spread"]);
    EXPECT_EQ(rate["loaded_tops"], rate["loaded_spread"]["median"]);
    EXPECT_EQ(rate["samples_tops"].size(), 3u);
    EXPECT_EQ(rate["emulated"], false);
    EXPECT_GT(rate["with_drain_tops"].get<double>(), 0);
    const bool s8 = rate["lane"] == "s8";
    for (const char* columns : {"32", "256", "row"}) EXPECT_EQ(rate["drains"][columns].is_null(), !s8) << columns;
  }
  EXPECT_EQ(by_threads[1], by_threads[2]);
  std::map<int, int> memory;
  for (const Json& rate : document["memory_gbps"]) {
    expect_ordered(rate["gbps"]);
    ++memory[rate["threads"].get<int>()];
  }
  EXPECT_GE(memory[1], 5);
  EXPECT_EQ(memory[1], memory[2]);
}

TEST_F(Probe, says_int8_over_the_16_bit_lane_first) {
  const Json document = octalane_json(kQuick);
  if (document["rates"].empty()) GTEST_SKIP() << "no vector instructions here";
  const Json& first = document["ratios"][0];
  EXPECT_EQ(first["lane"], "s8");
  EXPECT_NE(first["over"], "s8");
  EXPECT_GT(first["ratio"].get<double>(), 0);
}

TEST_F(Probe, saves_the_rates_of_the_kernels_for_the_plans_to_come) {
  Arguments arguments = kQuick;
  const std::filesystem::path file = scratch() / "probed.json";
  arguments.insert(arguments.end(), {"--lane", "bf16", "-o", file.string()});
  const Json document = octalane_json(arguments);
  ASSERT_FALSE(document["kernels"].empty());
  for (const Json& kernel : document["kernels"]) {
    EXPECT_EQ(kernel["format"], "q4_0");
    EXPECT_EQ(kernel["staged"], "bf16");
    for (const Json& point : kernel["points"]) {
      const double tokens = point["tokens"], seconds = point["seconds_per_weight"];
      EXPECT_NEAR(point["tops"].get<double>() * seconds / (2e-12 * tokens), 1, 1e-9);
    }
  }
  ASSERT_EQ(document["crossovers"].size(), 1u);
  EXPECT_EQ(document["crossovers"][0]["kernels"][0]["tokens"], 1);
  EXPECT_EQ(files_in(scratch() / "probe-cache" / "octalane").size(), 1u);
  // The plan follows what was measured, from the cache and from the file.
  const Json& kernels = document["crossovers"][0]["kernels"];
  const std::string last = kernels.back()["kernel"];
  for (const std::string& rates : {std::string("auto"), file.string()}) {
    const Outcome plan = octalane({"plan", "-m", tiny_model(), "--tokens", "512", "--json", "--rates", rates});
    EXPECT_EQ(plan.err, "");
    EXPECT_EQ(Json::parse(plan.out)["plans"][0]["kernel"], last);
  }
}

TEST_F(Probe, of_one_instruction_set_has_no_other) {
  Arguments arguments = kQuick;
  arguments.insert(arguments.end(), {"--isa", "scalar"});
  const Json document = octalane_json(arguments);
  EXPECT_TRUE(document["rates"].empty());
  EXPECT_TRUE(document["ratios"].empty());
  EXPECT_FALSE(document["memory_gbps"].empty());
}

TEST_F(Probe, of_cuda_says_in_one_line_that_there_is_no_driver) {
  const Outcome outcome = octalane({"probe", "--device", "cuda", "--repeats", "1", "--sample-ms", "1"});
  if (outcome.exit_code == 0) GTEST_SKIP() << "a device is here";
  expect_error(outcome, 1, "cuda: ");
}

TEST_F(Probe, of_cuda_takes_no_flag_that_is_for_the_kernels_of_the_cpu) {
  const std::string file = scratch() / "cuda-rates.json";
  expect_error(octalane({"probe", "--device", "cuda", "-o", file}), 1, "--output");
  expect_error(octalane({"probe", "--device", "cuda", "--isa", "scalar"}), 1, "--isa");
  expect_error(octalane({"probe", "--device", "cuda", "--lane", "bf16"}), 1, "--lane");
  expect_error(octalane({"probe", "--device", "cuda:9"}), 2, "cuda:9");
}

TEST_F(Probe, prints_tables_for_people) {
  const Outcome outcome = octalane(kQuick);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"instruction", "TOP/s", "loaded", "drain 32", "read per thread", "kernels by tokens"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace octalane::cli_test
