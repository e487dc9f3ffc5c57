#include "cli/cuda_rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

namespace octalane::cli {
namespace {

using cuda::Event;
using cuda::Graph;

struct Prepared {
  Graph graph;
  ArmSamples* samples;
};

class Rotation {
 public:
  static Expected<Rotation> create(const cuda::Session& session, const cuda::Stream& stream,
                                   const RotationOptions& options) {
    Rotation rotation(session, stream, options);
    for (int i = 0; i <= std::max(options.batches, 1); ++i) {
      Expected<Event> event = session.event();
      if (!event) return fail_with(event);
      rotation.events_.push_back(std::move(*event));
    }
    return rotation;
  }

  Expected<Graph> prepare(const Arm& arm, int64_t launches) const {
    if (const Status once = arm.enqueue(*stream_, 0); !once) return fail_with(once);
    if (const Status done = stream_->synchronize(); !done) return fail_with(done);
    return Graph::capture(*stream_, [&]() -> Status {
      for (int64_t i = 0; i < launches; ++i) {
        if (const Status s = arm.enqueue(*stream_, i); !s) return s;
      }
      return {};
    });
  }

  /// Settles and times without the host in between, so that the device is never idle.
  Status sample_sustained(const Prepared& prepared) const {
    ArmSamples& to = *prepared.samples;
    if (const Status s = prepared.graph.launch(*stream_); !s) return s;
    const Expected<double> once = time_batch(prepared.graph);
    if (!once) return fail_with(once);
    const auto settle = static_cast<int64_t>(std::ceil(options_->settle_seconds / std::max(*once, 1e-7)));
    for (int64_t i = 0; i < settle; ++i) {
      if (const Status s = prepared.graph.launch(*stream_); !s) return s;
    }
    if (const Status s = events_[0].record(*stream_); !s) return s;
    for (int i = 1; i <= options_->batches; ++i) {
      if (const Status s = prepared.graph.launch(*stream_); !s) return s;
      if (const Status s = events_[static_cast<size_t>(i)].record(*stream_); !s) return s;
    }
    if (const Status s = stream_->synchronize(); !s) return s;
    to.states.push_back(cuda::read_state(session_->device().pci_bus_id));
    to.settle_launches.push_back(settle * to.launches);
    std::vector<double>& batches = to.batches.emplace_back();
    for (size_t i = 1; i <= static_cast<size_t>(options_->batches); ++i) {
      const Expected<double> seconds = Event::seconds_between(events_[i - 1], events_[i]);
      if (!seconds) return fail_with(seconds);
      batches.push_back(*seconds / static_cast<double>(to.launches));
    }
    to.seconds.push_back(median(batches));
    return {};
  }

  /// One batch to wake the device up, one to time.
  Status sample_burst(const Prepared& prepared) const {
    if (options_->sleep) {
      options_->sleep(options_->idle_seconds);
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(options_->idle_seconds));
    }
    if (const Status s = prepared.graph.launch(*stream_); !s) return s;
    const Expected<double> seconds = time_batch(prepared.graph);
    if (!seconds) return fail_with(seconds);
    prepared.samples->burst.push_back(*seconds / static_cast<double>(prepared.samples->launches));
    return {};
  }

 private:
  Rotation(const cuda::Session& session, const cuda::Stream& stream, const RotationOptions& options)
      : session_(&session), stream_(&stream), options_(&options) {}

  Expected<double> time_batch(const Graph& graph) const {
    if (const Status s = events_[0].record(*stream_); !s) return fail_with(s);
    if (const Status s = graph.launch(*stream_); !s) return fail_with(s);
    if (const Status s = events_[1].record(*stream_); !s) return fail_with(s);
    return Event::seconds_between(events_[0], events_[1]);
  }

  const cuda::Session* session_;
  const cuda::Stream* stream_;
  const RotationOptions* options_;
  std::vector<Event> events_;
};

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::vector<double> in_ms(std::vector<double> seconds) {
  for (double& value : seconds) value *= 1e3;
  return seconds;
}

}  // namespace

int64_t copies_beyond_l2(int64_t bytes, int64_t l2_bytes) { return 3 * l2_bytes / std::max<int64_t>(bytes, 1) + 1; }

int64_t launches_of_graph(int64_t copies, int64_t least) {
  const int64_t turn = std::max<int64_t>(copies, 1);
  return std::max<int64_t>((least + turn - 1) / turn, 1) * turn;
}

std::vector<std::vector<size_t>> random_orders(size_t arms, int rounds, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<size_t>> orders;
  for (int round = 0; round < rounds; ++round) {
    std::vector<size_t>& order = orders.emplace_back(arms);
    std::iota(order.begin(), order.end(), size_t{0});
    // std::shuffle differs between libraries.
    for (size_t left = arms; left > 1; --left) std::swap(order[left - 1], order[random() % left]);
  }
  return orders;
}

Expected<RotationResult> time_arms(const cuda::Session& session, const cuda::Stream& stream,
                                   const std::vector<Arm>& arms, const RotationOptions& options) {
  if (options.rounds < 1 || options.batches < 1) {
    return fail("bench: wanted at least one round and one batch, got {} and {}", options.rounds, options.batches);
  }
  const Expected<Rotation> rotation = Rotation::create(session, stream, options);
  if (!rotation) return fail_with(rotation);
  RotationResult result;
  result.arms.resize(arms.size());
  result.orders = random_orders(arms.size(), options.rounds, options.seed);
  std::vector<Prepared> prepared;
  for (size_t i = 0; i < arms.size(); ++i) {
    ArmSamples& samples = result.arms[i];
    samples.name = arms[i].name;
    samples.launches = launches_of_graph(arms[i].copies, options.launches);
    Expected<Graph> graph = rotation->prepare(arms[i], samples.launches);
    if (!graph) return fail("{}: {}", arms[i].name, graph.error().message);
    prepared.push_back({std::move(*graph), &samples});
  }
  result.before = cuda::read_state(session.device().pci_bus_id);
  const int all = options.rounds * static_cast<int>(arms.size());
  int done = 0;
  for (const std::vector<size_t>& order : result.orders) {
    for (const size_t i : order) {
      if (options.progress && !options.progress(done++, all)) return fail("interrupted");
      if (const Status s = rotation->sample_sustained(prepared[i]); !s)
        return fail("{}: {}", arms[i].name, s.error().message);
      if (!options.burst) continue;
      if (const Status s = rotation->sample_burst(prepared[i]); !s)
        return fail("{}: {}", arms[i].name, s.error().message);
    }
  }
  result.after = cuda::read_state(session.device().pci_bus_id);
  return result;
}

Json state_json(const cuda::DeviceState& state) {
  return {{"sm_clock_mhz", known(state.sm_clock_mhz)},
          {"memory_clock_mhz", known(state.memory_clock_mhz)},
          {"power_watts", known(state.power_watts)},
          {"power_limit_watts", known(state.power_limit_watts)},
          {"temperature_celsius", known(state.temperature_celsius)}};
}

Json samples_json(const ArmSamples& samples) {
  Json states = Json::array(), batches = Json::array();
  for (const cuda::DeviceState& state : samples.states) states.push_back(state_json(state));
  for (const std::vector<double>& round : samples.batches) batches.push_back(in_ms(round));
  Json json = {{"ms", spread_json(in_ms(samples.seconds))},  {"samples_ms", in_ms(samples.seconds)},
               {"batches_ms", std::move(batches)},           {"launches_per_batch", samples.launches},
               {"settle_launches", samples.settle_launches}, {"states", std::move(states)}};
  json["burst_ms"] = samples.burst.empty() ? Json() : spread_json(in_ms(samples.burst));
  json["burst_samples_ms"] = in_ms(samples.burst);
  return json;
}

Json rotation_json(const RotationOptions& options) {
  return {{"rounds", options.rounds},
          {"batches", options.batches},
          {"least_launches_per_batch", options.launches},
          {"settle_seconds", options.settle_seconds},
          {"burst", options.burst},
          {"idle_seconds", options.idle_seconds},
          {"order_seed", options.seed}};
}

double median_speedup(const ArmSamples& arm, const ArmSamples& beside) {
  std::vector<double> ratios;
  for (size_t i = 0; i < arm.seconds.size(); ++i) ratios.push_back(beside.seconds[i] / arm.seconds[i]);
  return median(std::move(ratios));
}

}  // namespace octalane::cli
