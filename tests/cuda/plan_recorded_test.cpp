// Plans from the rates of an H200 beside what its receipts measured. No device takes part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cuda/binding.h"
#include "formats/format.h"
#include "probe/cuda_rates_file.h"

namespace octalane::test {
namespace {

using cuda::Candidate;
using cuda::DeviceInfo;
using cuda::Rates;
using Json = nlohmann::json;

constexpr double kMostOver = 1.05;  // of the fastest kernel's median

/// As the receipts name it.
const DeviceInfo kH200{.name = "NVIDIA H200",
                       .capability = 90,
                       .multiprocessors = 132,
                       .clock_mhz = 1980,
                       .memory_clock_mhz = 3201,
                       .memory_bus_bits = 6016,
                       .l2_bytes = 60 << 20,
                       .shared_bytes_per_block = 232448};

const std::string kResults = std::string(OCTALANE_TEST_DATA) + "/../docs/results/";

struct Arm {
  std::string kernel;
  StagedType lane;
  double seconds;
};

struct Cell {
  std::string format;
  cuda::Problem problem;
  std::vector<Arm> arms;  ///< octalane's
};

std::string describe(const Cell& cell) {
  return fmt::format("{} {} x {} x {}", cell.format, cell.problem.tokens, cell.problem.rows, cell.problem.cols);
}

std::optional<StagedType> lane_named(const std::string& name) {
  const auto found = std::ranges::find(kStagedTypes, name, &StagedTypeInfo::name);
  return found == kStagedTypes.end() ? std::nullopt : std::optional(found->type);
}

void add_cells(const std::string& receipt, std::vector<Cell>& cells) {
  std::ifstream file(kResults + receipt);
  const Json document = Json::parse(file, nullptr, false);
  ASSERT_TRUE(document.is_object()) << receipt;
  for (const Json& recorded : document["cells"]) {
    Cell cell{recorded["format"], {recorded["tokens"], recorded["rows"], recorded["cols"]}, {}};
    for (const Json& arm : recorded["arms"]) {
      if (!arm.contains("lane")) continue;
      const std::optional<StagedType> lane = lane_named(arm["lane"]);
      ASSERT_TRUE(lane) << arm["lane"];
      cell.arms.push_back({arm["name"], *lane, 1e-3 * arm["samples"]["ms"]["median"].get<double>()});
    }
    ASSERT_FALSE(cell.arms.empty()) << describe(cell);
    cells.push_back(std::move(cell));
  }
}

const std::vector<Cell>& recorded_cells() {
  static const std::vector<Cell> cells = [] {
    std::vector<Cell> read;
    for (const char* receipt : {"cuda_products_q4_k.json", "cuda_products_mlx4.json", "cuda_products_others.json",
                                "cuda_few_tokens.json", "cuda_few_tokens_wide.json"}) {
      add_cells(receipt, read);
    }
    return read;
  }();
  return cells;
}

Rates recorded_rates() {
  const auto saved = read_cuda_rates(kResults + "cuda_rates_h200.json");
  EXPECT_TRUE(saved) << saved.error().message;
  if (!saved) return {};
  EXPECT_EQ(saved->device, cuda_device_key(kH200));
  return saved->rates;
}

/// The lanes that a cell can judge: the stock one; each other one alone; all that were measured.
std::vector<cuda::LaneOptions> lane_options(const Cell& cell) {
  std::vector<cuda::LaneOptions> options{{}};
  cuda::LaneOptions all;
  for (const Arm& arm : cell.arms) {
    if (info(arm.lane).stock || all.lossy.contains(arm.lane)) continue;
    all.lossy.insert(arm.lane);
    options.push_back({.forced = arm.lane});
  }
  if (all.lossy != StagedSet{}) options.push_back(all);
  return options;
}

struct Outcome {
  double over = 0;  ///< the time of the plan's kernel over that of the fastest one
  std::string what;
};

/// A plan for a cell, by what the cell measured. A kernel that it has no figure of counts as infinitely slow.
Outcome outcome(const Cell& cell, const cuda::LaneOptions& lanes, const Rates* rates) {
  const Format* format = find_format(cell.format);
  if (format == nullptr) return {INFINITY, cell.format + ": no such format"};
  const auto plan = cuda::choose(
      cell.problem,
      cuda::list_candidates(format->spec, cell.problem.rows, cell.problem.cols, lanes, cuda::kEncodings, kH200), kH200,
      rates);
  if (!plan) return {INFINITY, describe(cell) + ": " + plan.error().message};
  const Arm* fastest = nullptr;
  double seconds = INFINITY;
  for (const Arm& arm : cell.arms) {
    if (!lanes.allow(arm.lane)) continue;
    if (fastest == nullptr || arm.seconds < fastest->seconds) fastest = &arm;
    if (arm.kernel == plan->kernel) seconds = arm.seconds;
  }
  const std::string_view several = lanes.lossy == StagedSet{} ? "stock" : "all";
  const std::string_view asked = lanes.forced ? octalane::name(*lanes.forced) : several;
  return {seconds / fastest->seconds,
          fmt::format("{}, {}: {} takes {:.2f} us, {} {:.2f}; estimated {:.2f}", describe(cell), asked, plan->kernel,
                      1e6 * seconds, fastest->kernel, 1e6 * fastest->seconds, 1e6 * plan->seconds)};
}

std::vector<Outcome> outcomes(const Rates* rates) {
  std::vector<Outcome> all;
  for (const Cell& cell : recorded_cells()) {
    for (const cuda::LaneOptions& lanes : lane_options(cell)) all.push_back(outcome(cell, lanes, rates));
  }
  return all;
}

int64_t count_misses(const std::vector<Outcome>& all) {
  return std::ranges::count_if(all, [](const Outcome& one) { return !(one.over <= kMostOver); });
}

TEST(CudaPlanRecorded, takes_a_kernel_within_5_percent_of_the_fastest_measured_one) {
  const Rates rates = recorded_rates();
  const std::vector<Outcome> all = outcomes(&rates);
  EXPECT_GE(all.size(), 50u);
  double worst = 1;
  for (const Outcome& one : all) {
    EXPECT_LE(one.over, kMostOver) << one.what;
    worst = std::max(worst, one.over);
  }
  RecordProperty("worst_over_fastest", fmt::format("{:.4f}", worst));
}

TEST(CudaPlanRecorded, would_miss_without_the_measured_rates) { EXPECT_GT(count_misses(outcomes(nullptr)), 0); }

TEST(CudaPlanRecorded, would_miss_with_the_rates_of_other_kernels) {
  Rates rates = recorded_rates();
  std::vector<cuda::KernelRate*> gemms;
  for (auto& [kernel, rate] : rates.kernels) {
    if (rate.panel_seconds > 0) gemms.push_back(&rate);
  }
  for (size_t i = 0; i < gemms.size() / 2; ++i) std::swap(*gemms[i], *gemms[gemms.size() - 1 - i]);
  EXPECT_GT(count_misses(outcomes(&rates)), 0);
}

/// Estimates, not choices alone: of all gemms on more than half a tile of tokens, the fit's own residuals.
TEST(CudaPlanRecorded, estimates_gemms_within_6_percent) {
  const Rates rates = recorded_rates();
  int compared = 0;
  for (const Cell& cell : recorded_cells()) {
    cuda::LaneOptions lanes;
    for (const Arm& arm : cell.arms) lanes.lossy.insert(arm.lane);
    const auto candidates = cuda::list_candidates(find_format(cell.format)->spec, cell.problem.rows, cell.problem.cols,
                                                  lanes, cuda::kEncodings, kH200);
    for (const Arm& arm : cell.arms) {
      const auto found = std::ranges::find(candidates, arm.kernel, &Candidate::kernel);
      ASSERT_NE(found, candidates.end()) << arm.kernel;
      EXPECT_EQ(found->refusal, "") << describe(cell) << ": " << arm.kernel;
      if (found->tile_rows == 0 || 2 * cell.problem.tokens < found->tile_tokens) continue;
      const double seconds = cuda::measured_seconds(*found, cell.problem, kH200, rates, rates.kernels.at(arm.kernel));
      EXPECT_NEAR(seconds / arm.seconds, 1, 0.06) << describe(cell) << ": " << arm.kernel;
      ++compared;
    }
  }
  EXPECT_GE(compared, 100);
}

}  // namespace
}  // namespace octalane::test
