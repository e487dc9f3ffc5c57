// bench gemm: one product, checked and then timed, for each format and number of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_gemm_cuda.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/peaks.h"
#include "cli/random_blocks.h"
#include "cli/random_tokens.h"
#include "cli/sampling.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/ablation.h"
#include "core/parallel.h"
#include "files/npy.h"
#include "linear/reference.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> formats;
  std::string against;
  std::string kernel;
  int64_t rows = 0, cols = 0;
  std::vector<int64_t> tokens{1, 8, 512};
  uint64_t seed = 1;
  std::string activations = "gaussian";
  SamplingOptions sampling;
};

constexpr int64_t kMostColdBytes = 2ll << 30;

/// Weights of one format bound for one lane; several copies when caches are to be cold.
struct Bound {
  std::string lane;
  std::vector<Linear> copies;
};

/// One lane's side of a cell.
struct Arm {
  const Bound* bound;
  Context context;  ///< of this cell alone, so that it tells which kernel ran
  Matrix y;
  size_t next_copy = 0;
  ProductErrors errors;
  Samples samples;
  Plan plan;
  std::vector<double> loaded_tops;  ///< of the kernel's instruction, one sample for each repeat; empty when unknown
};

Expected<Context> lane_context(const Options& options, const std::string& lane) {
  CommonOptions common = options.common;
  common.lane = lane;
  std::vector<const Format*> formats;
  for (const std::string& format : options.formats) formats.push_back(find_format(format));
  return make_context(common, formats);
}

Expected<Bound> bind(const Options& options, const Format& format, const std::string& lane,
                     const StoredMatrix& weights) {
  Expected<Context> context = lane_context(options, lane);
  if (!context) return fail_with(context);
  Bound bound{lane, {}};
  int64_t copies = 1;
  for (int64_t i = 0; i < copies; ++i) {
    Expected<Linear> linear = Linear::bind(*context, std::string(format.name), weights);
    if (!linear) return fail_with(linear);
    const int64_t wanted = options.sampling.cold ? std::min(2 * last_level_cache_bytes(), kMostColdBytes) : 0;
    copies = std::max<int64_t>(1, (wanted + linear->bytes() - 1) / linear->bytes());
    bound.copies.push_back(std::move(*linear));
  }
  return bound;
}

/// Multiplies once and judges the output, before anything is timed. An error beyond what fp32 sums of this length can
/// have is a wrong kernel. The outputs of an ablation build are wrong by design, and have no errors to tell.
Status check(Arm& arm, const Matrix& x) {
  const Linear& linear = arm.bound->copies.front();
  if (kAblation != Ablation::none) {
    arm.errors = {NAN, NAN, NAN};
    return linear.multiply(arm.context, x.view(), arm.y.view());
  }
  Activations activations(arm.context, x.view());
  if (const Status done = linear.multiply(arm.context, activations, arm.y.view()); !done) return done;
  arm.errors = measure_errors(arm.context, linear, activations, std::as_const(arm.y).view(),
                              rows_to_check(linear, x.rows, 100'000'000));
  const double most = std::max(1e-6, static_cast<double>(x.cols) * 0x1p-24);
  if (!(arm.errors.kernel <= most)) {
    return fail("{}: wanted a kernel error of at most {:.2e}, got {:.2e}: not timed", arm.context.uses().begin()->first,
                most, arm.errors.kernel);
  }
  return {};
}

/// One product with the next copy of the weights, activations quantized anew.
Status multiply(Arm& arm, const Matrix& x) {
  const Linear& linear = arm.bound->copies[arm.next_copy++ % arm.bound->copies.size()];
  return linear.multiply(arm.context, x.view(), arm.y.view());
}

/// Checks every arm, then times them.
Status measure(const SamplingOptions& sampling, const Matrix& x, std::vector<Arm>& arms) {
  std::vector<Timed> timed;
  for (Arm& arm : arms) {
    if (const Status done = check(arm, x); !done) return done;
    Expected<Plan> plan = arm.bound->copies.front().plan(arm.context, x.rows);
    if (!plan) return fail_with(plan);
    arm.plan = std::move(*plan);
    timed.push_back({[&arm, &x] { return multiply(arm, x); }});
  }
  const auto sample_peaks = [&arms] {
    for (Arm& arm : arms) {
      const std::optional<double> tops = sample_loaded_tops(arm.plan.choice, arm.context.threads());
      if (tops) arm.loaded_tops.push_back(*tops);
    }
  };
  Expected<std::vector<Samples>> samples = take_samples(sampling, timed, sample_peaks);
  if (!samples) return fail_with(samples);
  for (size_t i = 0; i < arms.size(); ++i) arms[i].samples = std::move((*samples)[i]);
  return {};
}

Json refusals_json(const std::vector<Refusal>& refused) {
  Json list = Json::array();
  for (const Refusal& refusal : refused) list.push_back({{"kernel", refusal.kernel}, {"why", refusal.why}});
  return list;
}

/// of_peak: within each repeat, the share of what the kernel's instruction reached right after. That is measured while
/// the loop has its core; so is, of one thread, the product.
void add_peak(Json& cell, const Arm& arm) {
  cell["of_peak"] = nullptr;
  if (arm.loaded_tops.empty()) return;
  const double tera_ops = cell["tops"].get<double>() * median(arm.samples.seconds);
  std::vector<double> shares;
  for (size_t i = 0; i < arm.loaded_tops.size(); ++i) {
    const double seconds = arm.context.threads() == 1 ? arm.samples.cpu[i] : arm.samples.seconds[i];
    shares.push_back(tera_ops / seconds / arm.loaded_tops[i]);
  }
  cell["of_peak"] = median(shares);
  cell["peak"] = {{"instruction", arm.plan.choice.kernel->instruction},
                  {"isa", arm.plan.choice.isa->name},
                  {"loaded_tops", spread_json(arm.loaded_tops)},
                  {"samples_tops", arm.loaded_tops},
                  {"share", spread_json(shares)}};
}

Json arm_json(const Options& options, const Arm& arm, ReadRates& reading) {
  const Linear& linear = arm.bound->copies.front();
  const auto copies = static_cast<int64_t>(arm.bound->copies.size());
  const auto tokens = static_cast<double>(arm.y.rows), rows = static_cast<double>(options.rows);
  const auto cols = static_cast<double>(options.cols);
  const auto& [kernel, use] = *arm.context.uses().begin();
  Json cell = {{"kernel", kernel},
               {"staged", name(use.staged)},
               {"lane_asked", arm.bound->lane},
               {"isa_asked", options.common.isa.empty() ? Json() : Json(options.common.isa)},
               {"device", "cpu"},
               {"format", linear.format().name},
               {"rows", options.rows},
               {"cols", options.cols},
               {"tokens", arm.y.rows},
               {"threads", arm.context.threads()}};
  add_samples(cell, arm.samples, 2 * tokens * rows * cols);
  const double bytes = static_cast<double>(linear.bytes()) + 4 * tokens * (rows + cols);
  add_peak(cell, arm);
  const double gbps = 1e-9 * bytes / median(arm.samples.seconds);
  const std::optional<double> read_gbps = reading.gbps(copies * linear.bytes());
  cell["gbps"] = gbps;
  cell["read_gbps"] = read_gbps ? Json(*read_gbps) : Json();
  cell["of_read_rate"] = read_gbps ? Json(gbps / *read_gbps) : Json();
  cell["kernel_error"] = arm.errors.kernel;
  cell["total_error"] = arm.errors.total;
  cell["fallback"] = linear.fallback().empty() ? Json() : Json(linear.fallback());
  // Codebooks are encoded again by the kernels themselves: over the rows that were looked at.
  const bool codebooks = linear.weights().spec.code.is_codebook() && !info(arm.plan.choice.kernel->staged).stock;
  cell["weight_error"] = linear.restaged() != nullptr ? Json(linear.restaged()->relative_error)
                         : codebooks                  ? Json(arm.errors.weights)
                                                      : Json();
  cell["packed_bytes"] = linear.bytes();
  cell["copies"] = copies;
  cell["rotated_bytes"] = copies * linear.bytes();
  cell["reason"] = arm.plan.reason;
  cell["refused"] = refusals_json(arm.plan.refused);
  return cell;
}

/// How much faster B is than A, repeat by repeat.
Json pair_json(const Arm& a, const Arm& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.samples.seconds.size(); ++i) ratios.push_back(a.samples.seconds[i] / b.samples.seconds[i]);
  return {{"format", a.bound->copies.front().format().name},
          {"tokens", a.y.rows},
          {"lane", a.bound->lane},
          {"vs", b.bound->lane},
          {"vs_speedup", spread_json(ratios)}};
}

/// All cells of one format.
Status bench_format(const Options& options, const Format& format, int threads, ReadRates& reading, Json& cells,
                    Json& pairs) {
  const auto wait = [&]() -> Status { return options.sampling.turns ? wait_for_turn() : Status(); };
  if (const Status turn = wait(); !turn) return turn;
  const double deviation = 1 / std::sqrt(static_cast<double>(options.cols));
  const RandomMatrix weights = random_matrix(format, options.rows, options.cols, deviation, options.seed, threads);
  std::vector<Bound> bounds;
  for (const std::string& lane : {options.common.lane, options.against}) {
    if (lane.empty()) continue;
    Expected<Bound> bound = bind(options, format, lane, weights.matrix);
    if (!bound) return fail_with(bound);
    bounds.push_back(std::move(*bound));
  }
  for (const int64_t tokens : options.tokens) {
    const Matrix x{random_tokens(options.activations, tokens, options.cols, options.seed + 1), tokens, options.cols};
    std::vector<Arm> arms;
    for (const Bound& bound : bounds) {
      Expected<Context> context = lane_context(options, bound.lane);
      if (!context) return fail_with(context);
      Matrix y{std::vector<float>(static_cast<size_t>(tokens * options.rows)), tokens, options.rows};
      arms.push_back({&bound, std::move(*context), std::move(y), 0, {}, {}, {}, {}});
    }
    if (const Status turn = wait(); !turn) return turn;
    if (const Status done = measure(options.sampling, x, arms); !done) return done;
    for (const Arm& arm : arms) {
      cells.push_back(arm_json(options, arm, reading));
    }
    if (arms.size() == 2) pairs.push_back(pair_json(arms[0], arms[1]));
  }
  return {};
}

void print_people(const Json& cells, const Json& pairs) {
  Table table({{"format"},
               {"tokens", Table::Align::right},
               {"kernel"},
               {"ms", Table::Align::right},
               {"min", Table::Align::right},
               {"max", Table::Align::right},
               {"TOP/s", Table::Align::right},
               {"of peak", Table::Align::right},
               {"GB/s", Table::Align::right},
               {"of reading", Table::Align::right},
               {"kernel error", Table::Align::right},
               {"total error", Table::Align::right}});
  for (const Json& cell : cells) {
    const auto number = [](const Json& value, const char* form) {
      return fmt::format(fmt::runtime(form), value.get<double>());
    };
    const auto percent = [](const Json& share) {
      return share.is_null() ? "" : fmt::format("{:.1f} %", 100 * share.get<double>());
    };
    table.add({cell["format"].get<std::string>(), fmt::format("{}", cell["tokens"].get<int64_t>()),
               cell["kernel"].get<std::string>(), number(cell["ms"]["median"], "{:.3f}"),
               number(cell["ms"]["min"], "{:.3f}"), number(cell["ms"]["max"], "{:.3f}"), number(cell["tops"], "{:.4f}"),
               percent(cell["of_peak"]), number(cell["gbps"], "{:.2f}"), percent(cell["of_read_rate"]),
               number(cell["kernel_error"], "{:.1e}"), number(cell["total_error"], "{:.1e}")});
  }
  fmt::print("{}", table.text());
  for (const Json& pair : pairs) {
    const Json& speedup = pair["vs_speedup"];
    fmt::print("{}, {} tokens: {} is {:.2f} times as fast as {} ({:.2f} to {:.2f})\n",
               pair["format"].get<std::string>(), pair["tokens"].get<int64_t>(), pair["vs"].get<std::string>(),
               speedup["median"].get<double>(), pair["lane"].get<std::string>(), speedup["min"].get<double>(),
               speedup["max"].get<double>());
  }
  if (kAblation != Ablation::none) fmt::print("Ablation build, {}: nothing was checked.\n", name(kAblation));
}

Expected<int> bench_on_cuda(const Options& options) {
  const std::pair<const char*, bool> of_the_cpu[] = {{"--isa", !options.common.isa.empty()},
                                                     {"--vs", !options.against.empty()},
                                                     {"--cold", options.sampling.cold},
                                                     {"--take-turns", options.sampling.turns}};
  for (const auto& [flag, given] : of_the_cpu) {
    if (given)
      return fail("{} is for the kernels of the CPU; --device cuda times all of its own, from cold memory", flag);
  }
  return bench_gemm_cuda({options.formats, options.tokens, options.rows, options.cols, options.common.lane,
                          options.kernel, static_cast<int>(options.sampling.repeats), options.seed, options.common.json,
                          options.activations});
}

Expected<int> bench_gemm(const Options& options) {
  if (options.common.device == "cuda") return bench_on_cuda(options);
  if (!options.kernel.empty()) return fail("--kernel is for the kernels of --device cuda");
  const Expected<Context> context = make_context(options.common);
  if (!context) return fail_with(context);
  if (options.sampling.cold && last_level_cache_bytes() == 0) {
    return fail("--cold: wanted the size of the last-level cache, got nothing from this system");
  }
  for (const std::string& format : options.formats) {
    if (const int block = find_format(format)->block; options.cols % block != 0) {
      return fail("--cols: wanted a multiple of {}, the block of {}, got {}", block, format, options.cols);
    }
  }
  Json cells = Json::array(), pairs = Json::array();
  ReadRates reading(*context);
  const InterruptScope scope;
  Progress progress;
  for (const std::string& format : options.formats) {
    progress.show(fmt::format("{}: {} x {}", format, options.rows, options.cols));
    const Status done = bench_format(options, *find_format(format), context->threads(), reading, cells, pairs);
    if (!done) return fail_with(done);
  }
  progress.clear();
  if (options.common.json) {
    print_json({{"command", command_line()},
                {"ablation", ablation_json()},
                {"machine", machine_json(*context)},
                {"seed", options.seed},
                {"activations", options.activations},
                {"input", describe_input(options.activations)},
                {"timed", "activation quantizing and product"},
                {"cache", options.sampling.cold ? "cold: copies of the weights in rotation" : "warm"},
                {"sampling", sampling_json(options.sampling)},
                {"memory_gbps", reading.json()},
                {"cells", std::move(cells)},
                {"pairs", std::move(pairs)}});
  } else {
    print_people(cells, pairs);
  }
  return 0;
}

}  // namespace

Command bench_gemm_command(CLI::App& bench) {
  Flags flags(bench, "gemm", "Time Y = X W^T with random weights");
  flags.footer(
      "What is timed is quantizing the activations and the product. Every cell's error is checked before it is timed. "
      "Rows "
      "are weight rows (outputs), columns the length of a row.");
  auto options = std::make_shared<Options>();
  flags.choices("--format", options->formats, random_formats(), "Weight formats", Need::required);
  flags.number("--rows", options->rows, 1, int64_t{1} << 28, "Weight rows, N", Need::required);
  flags.number("--cols", options->cols, 1, int64_t{1} << 24, "Weight columns, K", Need::required);
  flags.numbers("--tokens", options->tokens, "Rows of activations, M");
  flags.choice("--vs", options->against, lane_names(), "Time this lane too, in alternation with --lane");
  flags.text("--kernel", options->kernel,
             "With --device cuda: only kernels whose names contain this; those of mma.sync run beside wgmma's only so");
  flags.number("--repeats", options->sampling.repeats, 1, 1000, "Samples per cell");
  flags.seed(options->seed, "Seed of weights and activations");
  flags.choice("--activations", options->activations, token_kinds(),
               "Gaussian; Student's t with 3 degrees of freedom; Gaussian with one channel times 1000");
  flags.toggle("--cold", options->sampling.cold,
               "Rotate copies of the weights of twice the last-level cache (at most 2 GiB)");
  flags.toggle("--take-turns", options->sampling.turns,
               "Before each step write `ready` on stderr and wait for a line on standard input");
  flags.common(options->common, {"cpu", "cuda"});
  flags.rates(options->common);
  options->common.wrong_results = true;
  return {flags.app(), [options] { return bench_gemm(*options); }};
}

}  // namespace octalane::cli
