#include "cli/sampling.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/machine.h"
#include "cli/terminal.h"

namespace octalane::cli {
namespace {

constexpr double kWarmUpSeconds = 0.1;
constexpr double kSampleSeconds = 0.01;  ///< least length of a sample: shorter calls are repeated inside it
constexpr int kAttempts = 4;             ///< most times that a sample is taken

/// Seconds for `calls` calls.
Expected<double> time_calls(const Timed& arm, int64_t calls) {
  const double start = now_seconds();
  for (int64_t i = 0; i < calls; ++i) {
    if (const Status done = arm.call(); !done) return fail_with(done);
  }
  return now_seconds() - start;
}

/// Sets warm_up_calls and calls.
Status warm_up(const Timed& arm, Samples& samples) {
  double least = INFINITY;
  for (const double end = now_seconds() + kWarmUpSeconds; now_seconds() < end; ++samples.warm_up_calls) {
    const Expected<double> seconds = time_calls(arm, 1);
    if (!seconds) return fail_with(seconds);
    least = std::min(least, *seconds);
  }
  samples.calls = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kSampleSeconds / std::max(least, 1e-9))));
  return {};
}

std::vector<double> in_ms(std::vector<double> seconds) {
  for (double& value : seconds) value *= 1e3;
  return seconds;
}

/// What the threads of this process have had, together.
struct Used {
  double cpu_seconds;
  int64_t involuntary_switches;  ///< how often another program has taken a core
};
Used used() {
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec), usage.ru_nivcsw};
}

Status take_one(const SamplingOptions& options, const Timed& arm, Samples& samples) {
  double best = 0, best_cpu = 0;
  int64_t fewest = INT64_MAX;
  for (int attempt = 0; attempt < kAttempts && fewest > 0; ++attempt) {
    if (!options.cold) {
      if (const Status done = arm.call(); !done) return done;
    }
    const Used before = used();
    const Expected<double> seconds = time_calls(arm, samples.calls);
    if (!seconds) return fail_with(seconds);
    const Used after = used();
    const auto products = static_cast<double>(samples.calls * arm.products);
    int64_t switches = after.involuntary_switches - before.involuntary_switches;
    double sample = *seconds / products, cpu = (after.cpu_seconds - before.cpu_seconds) / products;
    if (switches < fewest) {
      std::swap(switches, fewest);
      std::swap(sample, best);
      std::swap(cpu, best_cpu);
    }
    if (attempt > 0) samples.disturbed.push_back(sample);
  }
  samples.seconds.push_back(best);
  samples.cpu.push_back(best_cpu);
  samples.switches.push_back(fewest);
  return {};
}

}  // namespace

Expected<std::vector<Samples>> take_samples(const SamplingOptions& options, const std::vector<Timed>& arms,
                                            const std::function<void()>& after_round) {
  std::vector<Samples> all(arms.size());
  for (size_t i = 0; i < arms.size(); ++i) {
    if (const Status done = warm_up(arms[i], all[i]); !done) return fail_with(done);
  }
  for (int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    if (options.turns) {
      if (const Status turn = wait_for_turn(); !turn) return fail_with(turn);
    }
    for (size_t i = 0; i < arms.size(); ++i) {
      if (const Status done = take_one(options, arms[i], all[i]); !done) return fail_with(done);
      if (interrupted()) return fail("interrupted");
    }
    if (after_round) after_round();
  }
  return all;
}

void add_samples(Json& cell, const Samples& samples, double ops) {
  const std::vector<double> ms = in_ms(samples.seconds);
  cell["ms"] = spread_json(ms);
  cell["tops"] = 1e-12 * ops / median(samples.seconds);
  cell["samples_ms"] = ms;
  cell["cpu_ms"] = in_ms(samples.cpu);
  cell["involuntary_switches"] = samples.switches;
  cell["disturbed_samples_ms"] = in_ms(samples.disturbed);
  cell["calls_per_sample"] = samples.calls;
  cell["warm_up_calls"] = samples.warm_up_calls;
}

Json sampling_json(const SamplingOptions& options) {
  return {{"repeats", options.repeats},
          {"warm_up_seconds", kWarmUpSeconds},
          {"least_sample_seconds", kSampleSeconds},
          {"most_attempts", kAttempts},
          {"untimed_call_before_each_sample", !options.cold},
          {"turns_with_other_programs", options.turns}};
}

Status wait_for_turn() {
  fmt::print(stderr, "ready\n");
  for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
    if (c == EOF) return fail("standard input: wanted a line for each turn, got its end");
  }
  return {};
}

}  // namespace octalane::cli
