// What the drivers of other systems share: the flags, data, checks, sampling and receipt of `octalane bench gemm`, by
// the same code. A driver brings a Peer and calls run_peer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/random_blocks.h"
#include "cli/sampling.h"
#include "files/npy.h"

namespace octalane::peers {

using cli::Json;

struct Options {
  std::vector<std::string> formats;  ///< empty when the peer chooses its operand types itself
  int64_t rows = 0, cols = 0;
  std::vector<int64_t> tokens{1, 8, 512};
  int threads = 1;
  uint64_t seed = 1;
  cli::SamplingOptions sampling;
};

/// One way in which a peer multiplies: y[M, N] = x[M, K] W[N, K]^T.
class Arm {
 public:
  virtual ~Arm() = default;
  virtual Json cell() const = 0;  ///< kernel, format, and what else a cell says beside shape, samples and errors
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t products_per_call() const = 0;
  virtual Status multiply() = 0;
  virtual void output(MatrixView<float> y) const = 0;  ///< of the last product made
  virtual void decode_row(int64_t row, float* out) const = 0;
  /// x as it was multiplied, decoded; empty when the peer rounds it out of sight.
  virtual std::vector<float> operand() const = 0;
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual Json version() const = 0;
  virtual std::string timed() const = 0;
  /// Makes the weights. `format` is null when the peer chooses its operand types itself.
  virtual Status prepare(const Options& options, const Format* format) = 0;
  /// All ways of this peer for these weights and these activations, which outlive them.
  virtual Expected<std::vector<std::unique_ptr<Arm>>> arms(const Options& options, const Matrix& x) = 0;
  /// [{kernel, why}] of the weights prepared.
  virtual Json refused() const = 0;
};

/// Copies of `bytes` that a cold run rotates: twice the last-level cache, at most 2 GiB.
int64_t copies(const Options& options, int64_t bytes);

/// Runs `PROGRAM gemm ...` and prints the receipt. Returns the exit code.
int run_peer(int argc, char** argv, const std::string& engine, bool takes_formats, Peer& peer);

}  // namespace octalane::peers
