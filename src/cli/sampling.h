// How a speed is sampled: warm-up by time, repeats in alternation, turns with other programs. The drivers of other
// systems in bench/peers/ are sampled by the same code.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cli/command.h"

namespace octalane::cli {

struct SamplingOptions {
  int64_t repeats = 7;
  bool cold = false;   ///< the caller rotates its operands: no sample begins with an untimed call
  bool turns = false;  ///< wait_for_turn() before each round of samples
};

/// Something to time. One call does `products` products.
struct Timed {
  std::function<Status()> call;
  int64_t products = 1;
};

struct Samples {
  int64_t warm_up_calls = 0;
  int64_t calls = 0;            ///< per sample: as many as last 10 ms
  std::vector<double> seconds;  ///< per product, one for each repeat
  std::vector<double> cpu;      ///< seconds that all threads of the process together had a core for, likewise
  /// For each repeat, how often another program took a core from this one meanwhile; and the samples that were taken
  /// again for it.
  std::vector<int64_t> switches;
  std::vector<double> disturbed;
};

/// Warms every arm up for a tenth of a second, then times them in alternation: A B A B ... Of warm arms each sample
/// begins with an untimed call, which brings back what the other arms have put out of the caches. A sample during which
/// another program took a core is taken again, a few times at most; the least disturbed one counts. `after_round` is
/// called after each round, to sample something else beside the arms.
Expected<std::vector<Samples>> take_samples(const SamplingOptions& options, const std::vector<Timed>& arms,
                                            const std::function<void()>& after_round = {});

/// Adds to a cell what its samples say: ms, tops, samples_ms, cpu_ms, involuntary_switches, disturbed_samples_ms,
/// calls_per_sample, warm_up_calls. `ops` is 2 M N K.
void add_samples(Json& cell, const Samples& samples, double ops);

/// How cells are sampled, for the head of a receipt.
Json sampling_json(const SamplingOptions& options);

/// Lets a script alternate programs: writes "ready" on stderr, then waits for a line on standard input. Fails at its
/// end.
Status wait_for_turn();

}  // namespace octalane::cli
