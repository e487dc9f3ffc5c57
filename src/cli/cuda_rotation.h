// How arms are timed beside each other on a device: operands in rotation, launches from graphs, the clock settled under
// the same load before anything is timed, arms in an order drawn anew for each round.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cuda/nvml.h"
#include "cuda/session.h"

namespace octalane::cli {

/// How many copies of operands of so many bytes are needed so that all of them together are more than three times the
/// L2; at least one.
int64_t copies_beyond_l2(int64_t bytes, int64_t l2_bytes);

/// The least multiple of `copies` that is no less than `least`: a graph of that many launches goes through all copies
/// and the next one begins where it ended.
int64_t launches_of_graph(int64_t copies, int64_t least);

/// For each round, an order of the arms; a given seed gives the same ones everywhere.
std::vector<std::vector<size_t>> random_orders(size_t arms, int rounds, uint64_t seed);

/// Something to time. `enqueue` launches the i-th of any number of launches, on copy i % copies, without waiting; it is
/// captured.
struct Arm {
  std::string name;
  int64_t copies = 1;
  std::function<Status(const cuda::Stream& stream, int64_t i)> enqueue;
};

struct RotationOptions {
  int rounds = 5;
  int batches = 10;             ///< behind the settling, each between two events; a batch is a graph
  int64_t launches = 10;        ///< of a batch, at least: it goes through all copies
  double settle_seconds = 0.1;  ///< of the same load, right before the first batch
  bool burst = false;           ///< also one batch after the device has been idle
  double idle_seconds = 0.4;
  uint64_t seed = 1;
  std::function<void(double seconds)> sleep;        ///< in place of the thread's, for tests
  std::function<bool(int done, int all)> progress;  ///< between samples; false ends with the error "interrupted"
};

/// Seconds are per launch.
struct ArmSamples {
  std::string name;
  int64_t launches = 0;                      ///< of a batch
  std::vector<int64_t> settle_launches;      ///< for each round
  std::vector<std::vector<double>> batches;  ///< for each round
  std::vector<double> seconds;               ///< for each round, the median of its batches
  std::vector<double> burst;                 ///< for each round; empty when not asked for
  std::vector<cuda::DeviceState> states;     ///< for each round, read right behind its batches
};

struct RotationResult {
  std::vector<ArmSamples> arms;             ///< as they were given
  std::vector<std::vector<size_t>> orders;  ///< for each round
  cuda::DeviceState before, after;
};

/// Runs every arm once, captures it, then samples all arms in each round. An arm that fails is named in the error.
Expected<RotationResult> time_arms(const cuda::Session& session, const cuda::Stream& stream,
                                   const std::vector<Arm>& arms, const RotationOptions& options);

/// What a receipt has of an arm: ms per launch (median, least, most over rounds), all samples, bursts, states.
Json samples_json(const ArmSamples& samples);
Json state_json(const cuda::DeviceState& state);
Json rotation_json(const RotationOptions& options);

/// Median over rounds of the ratio within each round: how many times as fast as `beside` the arm was.
double median_speedup(const ArmSamples& arm, const ArmSamples& beside);

}  // namespace octalane::cli
