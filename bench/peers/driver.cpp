#include "driver.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "cli/machine.h"
#include "core/parallel.h"

namespace octalane::peers {
namespace {

constexpr int64_t kMostColdBytes = 2ll << 30;

/// |y - reference| / |reference| over evenly spread weight rows and all tokens; fp64 over decoded weights and x.
double relative_error(const Options& options, const Arm& arm, const float* x, const Matrix& y) {
  const int64_t checked = std::clamp<int64_t>(100'000'000 / (y.rows * options.cols), 16, y.cols);
  const int64_t count = std::min(checked, y.cols);
  std::vector<double> error(static_cast<size_t>(count)), norm(error.size());
  parallel_for(options.threads, count, 1, [&](int, int64_t begin, int64_t end) {
    std::vector<float> weights(static_cast<size_t>(options.cols));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i * y.cols / count;
      arm.decode_row(row, weights.data());
      for (int64_t m = 0; m < y.rows; ++m) {
        double sum = 0;
        for (int64_t k = 0; k < options.cols; ++k) {
          sum += static_cast<double>(weights[static_cast<size_t>(k)]) * static_cast<double>(x[m * options.cols + k]);
        }
        const double distance = static_cast<double>(y.view()(m, row)) - sum;
        error[static_cast<size_t>(i)] += distance * distance;
        norm[static_cast<size_t>(i)] += sum * sum;
      }
    }
  });
  double all_error = 0, all_norm = 0;
  for (size_t i = 0; i < error.size(); ++i) {
    all_error += error[i];
    all_norm += norm[i];
  }
  return std::sqrt(all_error / all_norm);
}

/// Multiplies once and judges the output, as bench gemm does. A peer is timed whatever its error is.
Status add_errors(const Options& options, Arm& arm, const Matrix& x, Json& cell) {
  if (const Status done = arm.multiply(); !done) return done;
  Matrix y{std::vector<float>(static_cast<size_t>(x.rows * options.rows)), x.rows, options.rows};
  arm.output(y.view());
  const std::vector<float> operand = arm.operand();
  cell["kernel_error"] = operand.empty() ? Json() : Json(relative_error(options, arm, operand.data(), y));
  cell["total_error"] = relative_error(options, arm, x.values.data(), y);
  return {};
}

Status run_cells(const Options& options, int64_t tokens, Peer& peer, Json& cells) {
  Matrix x{std::vector<float>(static_cast<size_t>(tokens * options.cols)), tokens, options.cols};
  cli::Gaussian(options.seed + 1).fill(x.values, 1);
  Expected<std::vector<std::unique_ptr<Arm>>> arms = peer.arms(options, x);
  if (!arms) return fail_with(arms);
  std::vector<cli::Timed> timed;
  std::vector<Json> errors(arms->size());
  for (size_t i = 0; i < arms->size(); ++i) {
    Arm& arm = *(*arms)[i];
    if (const Status done = add_errors(options, arm, x, errors[i]); !done) return done;
    timed.push_back({[&arm] { return arm.multiply(); }, arm.products_per_call()});
  }
  const Expected<std::vector<cli::Samples>> samples = cli::take_samples(options.sampling, timed);
  if (!samples) return fail_with(samples);
  for (size_t i = 0; i < arms->size(); ++i) {
    const Arm& arm = *(*arms)[i];
    Json cell = arm.cell();
    cell.update({{"device", "cpu"},
                 {"rows", options.rows},
                 {"cols", options.cols},
                 {"tokens", tokens},
                 {"threads", options.threads},
                 {"products_per_call", arm.products_per_call()}});
    const double ops = 2.0 * static_cast<double>(tokens) * static_cast<double>(options.rows * options.cols);
    cli::add_samples(cell, (*samples)[i], ops);
    const auto bytes = static_cast<double>(arm.weight_bytes() + 4 * tokens * (options.rows + options.cols));
    cell["gbps"] = 1e-9 * bytes / cli::median((*samples)[i].seconds);
    cell.update(errors[i]);
    cell["packed_bytes"] = arm.weight_bytes();
    cell["copies"] = copies(options, arm.weight_bytes());
    cells.push_back(std::move(cell));
  }
  return {};
}

Status run_format(const Options& options, const Format* format, Peer& peer, Json& cells, Json& refused) {
  const auto wait = [&]() -> Status { return options.sampling.turns ? cli::wait_for_turn() : Status(); };
  if (const Status turn = wait(); !turn) return turn;
  if (const Status done = peer.prepare(options, format); !done) return done;
  for (Json& refusal : peer.refused()) refused.push_back(std::move(refusal));
  for (const int64_t tokens : options.tokens) {
    if (const Status turn = wait(); !turn) return turn;
    if (const Status done = run_cells(options, tokens, peer, cells); !done) return done;
  }
  return {};
}

Status run(const Options& options, const std::string& engine, Peer& peer) {
  Json cells = Json::array(), refused = Json::array();
  for (const std::string& name : options.formats) {
    if (const Status done = run_format(options, find_format(name), peer, cells, refused); !done) return done;
  }
  if (options.formats.empty()) {
    if (const Status done = run_format(options, nullptr, peer, cells, refused); !done) return done;
  }
  cli::print_json({{"command", cli::command_line()},
                   {"engine", engine},
                   {"version", peer.version()},
                   {"seed", options.seed},
                   {"input", "Gaussian weights of standard deviation 1/sqrt(cols); Gaussian activations"},
                   {"timed", peer.timed()},
                   {"cache", options.sampling.cold ? "cold: copies of the weights in rotation" : "warm"},
                   {"sampling", cli::sampling_json(options.sampling)},
                   {"cells", std::move(cells)},
                   {"refused", std::move(refused)}});
  return {};
}

}  // namespace

int64_t copies(const Options& options, int64_t bytes) {
  const int64_t wanted = options.sampling.cold ? std::min(2 * cli::last_level_cache_bytes(), kMostColdBytes) : 0;
  return std::max<int64_t>(1, (wanted + bytes - 1) / bytes);
}

int run_peer(int argc, char** argv, const std::string& engine, bool takes_formats, Peer& peer) {
  Options options;
  CLI::App app("Times " + engine + " as `octalane bench gemm` times octalane; prints a receipt");
  app.require_subcommand(1);
  cli::Flags flags(app, "gemm", "Time Y = X W^T with random weights");
  if (takes_formats) {
    flags.choices("--format", options.formats, cli::writable_formats(), "Weight formats", cli::Need::required);
  }
  flags.number("--rows", options.rows, 1, int64_t{1} << 28, "Weight rows, N", cli::Need::required);
  flags.number("--cols", options.cols, 1, int64_t{1} << 24, "Weight columns, K", cli::Need::required);
  flags.numbers("--tokens", options.tokens, "Rows of activations, M");
  flags.number("--threads", options.threads, 1, usable_cores(), "Threads");
  flags.number("--repeats", options.sampling.repeats, 1, 1000, "Samples per cell");
  flags.seed(options.seed, "Seed of weights and activations");
  flags.toggle("--cold", options.sampling.cold, "Rotate copies of the weights of twice the last-level cache");
  flags.toggle("--take-turns", options.sampling.turns, "Before each step write `ready` and wait for a line");
  CLI11_PARSE(app, argc, argv);
  const Status done = run(options, engine, peer);
  if (!done) fmt::print(stderr, "{}: error: {}\n", argv[0], done.error().message);
  return done ? 0 : 1;
}

}  // namespace octalane::peers
