// The table of decode-once reuse for additive codebooks: one matrix-shaped product at 32, 64, 128, ... tokens, by
//   frozen     weights decoded again for every 16 tokens, by a kernel that stays as it was (bf16 lane)
//   per-tile   the library's kernel of the lane, called for 16 tokens at a time: it decodes again as well
//   reuse      the library's kernel, called once
// and at 1 to 16 tokens, in the bf16 lane, by every kernel that the library has for these weights here, with the plan's
// choice named; at 1 token beside
//   expand     the whole matrix decoded to fp16 first, then multiplied
// Four fixtures in rotation, 3 warm-up and 21 measured cycles, variants in an order drawn anew for each cycle; a time
// is that of a cycle over four. Outputs are compared bit for bit before anything is timed, those of few tokens with
// fp64: there each kernel sums in an order of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "additive/expanded.h"
#include "additive/fixtures.h"
#include "additive/frozen.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "files/output_file.h"
#include "kernels/registry.h"
#include "probe/timing.h"

namespace octalane::bench {
namespace {

using cli::Json;

constexpr int kFixtures = 4, kWarmUp = 3, kCycles = 21;

struct Options {
  int64_t rows = 14336, cols = 4096;
  std::vector<int64_t> tokens{1, 4, 16, 32, 64, 128};
  std::vector<std::string> lanes{"bf16", "s8.group"};
  std::string isa, rates = "auto", out;
  uint64_t seed = 1;
};

struct Variant {
  std::string name;
  Choice choice;
  std::function<void(const MatmulArgs&)> run;
  std::vector<double> seconds{};
};

MatmulArgs args_for(const PackedView& w, const ActivationsView& x, std::vector<float>& y, std::byte* scratch) {
  return {.w = w,
          .x = x,
          .y = dense_view(y.data(), x.rows, w.rows),
          .tile_begin = 0,
          .tile_end = w.tiles,
          .scratch = scratch};
}

/// Rows [first, first + 16) of activations, untiled forms.
ActivationsView some_rows(ActivationsView x, int64_t first) {
  const int64_t count = std::min(kFrozenTokens, x.rows - first);
  x.rows = count;
  if (x.f32 != nullptr) x.f32 += first * x.stride;
  if (x.codes != nullptr) x.codes += first * x.stride;
  if (x.scales != nullptr) x.scales += first * x.groups.scales(x.stride);
  if (x.sums != nullptr) x.sums += first * x.groups.sums(x.stride);
  return x;
}

void run_per_tile(const Kernel& kernel, const MatmulArgs& args) {
  for (int64_t first = 0; first < args.x.rows; first += kFrozenTokens) {
    MatmulArgs part = args;
    part.x = some_rows(args.x, first);
    part.y = dense_view(args.y.row(first), part.x.rows, args.w.rows);
    kernel.run(part);
  }
}

constexpr int64_t kFewTokens = 16;

/// The kernels of this lane that take these weights and tokens, and for one token the way around them.
std::vector<Variant> kernels_for(const Context& context, Problem problem, StagedType lane) {
  problem.staged = lane;
  std::vector<Variant> variants;
  const PlanInputs inputs = context.plan_inputs();
  for (const IsaTable* isa : inputs.isas) {
    for (const Kernel& kernel : isa->kernels) {
      const bool serves = kernel.staged == lane && kernel.order.rows == 16 && problem.tokens <= kernel.max_tokens &&
                          kernel.form == ActivationForm::bf16_as_f32 && kernel.supports(problem).empty();
      if (serves) variants.push_back({octalane::name(kernel), {&kernel, isa}, kernel.run});
    }
  }
  if (variants.empty() || problem.tokens > 1) return variants;
  auto expanded = std::make_shared<std::vector<uint16_t>>();
  const Choice choice = variants.front().choice;
  variants.insert(variants.begin(),
                  {"expand", choice, [expanded](const MatmulArgs& args) { expand_and_multiply(args, *expanded); }});
  return variants;
}

/// What a plan from this machine's rates takes.
std::string planned(const Context& context, const Problem& problem, StagedType lane) {
  PlanInputs inputs = context.plan_inputs();
  inputs.lane = lane;
  inputs.order = TileOrder{16};
  const Choice choice = choose_kernel(problem, inputs);
  return choice.kernel == nullptr ? "" : octalane::name(*choice.kernel);
}

Choice gemm_for(const Context& context, const Problem& problem, StagedType lane) {
  PlanInputs inputs = context.plan_inputs();
  inputs.lane = lane;
  Choice best;
  for (const IsaTable* isa : inputs.isas) {
    for (const Kernel& kernel : isa->kernels) {
      if (kernel.staged != lane || kernel.op != Op::gemm || kernel.order.rows != 16) continue;
      Problem staged = problem;
      staged.staged = lane;
      if (kernel.supports(staged).empty()) best = {&kernel, isa};
    }
  }
  return best;
}

std::vector<Variant> variants_of(const Choice& choice) {
  const Kernel& kernel = *choice.kernel;
  std::vector<Variant> variants;
  if (kernel.form == ActivationForm::bf16_as_f32) variants.push_back({"frozen", choice, frozen_bf16_gemm});
  // A strip of a tiled form is 32 tokens: 16 of them are not a form of their own.
  if (!is_tiled(kernel.form)) {
    variants.push_back({"per-tile", choice, [&kernel](const MatmulArgs& args) { run_per_tile(kernel, args); }});
  }
  variants.push_back({"reuse", choice, kernel.run});
  return variants;
}

/// Every variant is near fp64 and, if `same_bits`, gives the bits of the last. Returns the largest relative error of
/// spread outputs.
Expected<double> check(const Context& context, std::vector<Fixture>& fixtures, const std::vector<Variant>& variants,
                       bool same_bits, std::byte* scratch) {
  double largest = 0;
  for (Fixture& fixture : fixtures) {
    const ActivationsView& x = fixture.formed(context, variants.back().choice);
    const auto count = static_cast<size_t>(x.rows * fixture.weights().rows);
    std::vector<float> wanted(count, NAN), y(count);
    variants.back().run(args_for(fixture.weights(), x, wanted, scratch));
    for (const Variant& variant : variants) {
      std::fill(y.begin(), y.end(), NAN);
      variant.run(args_for(fixture.weights(), x, y, scratch));
      if (same_bits && std::memcmp(y.data(), wanted.data(), count * sizeof(float)) != 0) {
        return fail("{}: wanted the bits of {}, got others: not timed", variant.name, variants.back().name);
      }
      double difference = 0, reference = 0;
      for (int64_t i = 0; i < 64; ++i) {
        const int64_t m = i % x.rows, n = i * 7919 % fixture.weights().rows;
        const double exact = fixture.reference(m, n);
        const double got = y[static_cast<size_t>(m * fixture.weights().rows + n)];
        difference += (got - exact) * (got - exact);
        reference += exact * exact;
      }
      const double error = std::sqrt(difference / reference);
      if (!(error < 0.03)) {
        return fail("{}: wanted a total error below 0.03, got {:.2e}: not timed", variant.name, error);
      }
      largest = std::max(largest, error);
    }
  }
  return largest;
}

Expected<Json> measure(const Options& options, const Context& context, int64_t tokens, StagedType lane) {
  std::vector<Fixture> fixtures;
  for (int i = 0; i < kFixtures; ++i) {
    fixtures.emplace_back(options.rows, options.cols, tokens, options.seed + static_cast<uint64_t>(i));
  }
  const PackedView& first = fixtures[0].weights();
  const Problem problem{tokens, first.rows, first.cols, first.spec, lane};
  const bool few = tokens <= kFewTokens && lane == StagedType::bf16;
  const Choice gemm = gemm_for(context, problem, lane);
  if (gemm.kernel == nullptr) return fail("{}: no kernel of this lane here", name(lane));
  std::vector<Variant> variants = few ? kernels_for(context, problem, lane) : variants_of(gemm);
  int64_t scratch_bytes = 32 << 10;
  for (const Variant& variant : variants) {
    scratch_bytes = std::max(scratch_bytes, variant.choice.kernel->scratch_bytes(problem));
  }
  const AlignedBuffer<std::byte> scratch(scratch_bytes);
  const Expected<double> error = check(context, fixtures, variants, !few, scratch.data());
  if (!error) return fail_with(error);

  std::vector<float> y(static_cast<size_t>(tokens * options.rows));
  std::vector<size_t> order(variants.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(static_cast<uint32_t>(options.seed));
  Json orders = Json::array();
  for (int cycle = 0; cycle < kWarmUp + kCycles; ++cycle) {
    std::ranges::shuffle(order, random);
    for (const size_t at : order) {
      const double start = probe_seconds();
      for (Fixture& fixture : fixtures) {
        variants[at].run(args_for(fixture.weights(), fixture.formed(context, variants[at].choice), y, scratch.data()));
      }
      if (cycle >= kWarmUp) variants[at].seconds.push_back((probe_seconds() - start) / kFixtures);
    }
    if (cycle >= kWarmUp) orders.push_back(order);
  }
  const Variant& best =
      few ? *std::ranges::min_element(variants, {}, [](const Variant& v) { return median_of(v.seconds); })
          : variants.back();
  Json list = Json::array();
  for (const Variant& variant : variants) {
    const double seconds = median_of(variant.seconds);
    std::vector<double> ratios;
    for (size_t i = 0; i < variant.seconds.size(); ++i) {
      ratios.push_back(variant.seconds[i] / best.seconds[i]);
    }
    list.push_back({{"variant", variant.name},
                    {"ms", seconds * 1e3},
                    {"over_best", median_of(ratios)},
                    {"samples_seconds", variant.seconds}});
  }
  return Json{{"lane", name(lane)},
              {"kernel", octalane::name(*best.choice.kernel)},
              {"planned", planned(context, problem, lane)},
              {"tokens", tokens},
              {"bits_equal", few ? Json() : Json(true)},
              {"total_error", *error},
              {"tops", 2e-12 * static_cast<double>(tokens * options.rows * options.cols) / median_of(best.seconds)},
              {"scratch_bytes", best.choice.kernel->scratch_bytes(problem)},
              {"packed_bytes", first.tiles * first.records * first.record.bytes},
              {"variants", std::move(list)},
              {"orders", std::move(orders)}};
}

Expected<int> run(const Options& options) {
  if (const std::string why = find_isa("avx2")->unavailable(); !why.empty()) {
    return fail("the frozen kernels: wanted AVX2: {}", why);
  }
  cli::CommonOptions common;
  common.threads = 1;
  common.rates = options.rates;
  common.isa = options.isa;
  Expected<Context> context = cli::make_context(common, {find_format(kFormat)});
  if (!context) return fail_with(context);
  cli::Table table({{"lane"},
                    {"tokens", cli::Table::Align::right},
                    {"variant"},
                    {"ms", cli::Table::Align::right},
                    {"over the best", cli::Table::Align::right}});
  Json cells = Json::array();
  for (const std::string& lane : options.lanes) {
    for (const int64_t tokens : options.tokens) {
      Expected<Json> cell = measure(options, *context, tokens, *staged_type_from_name(lane));
      if (!cell) return fail_with(cell);
      for (const Json& variant : (*cell)["variants"]) {
        const bool is_planned = variant["variant"] == (*cell)["planned"];
        table.add({lane, fmt::format("{}", tokens),
                   variant["variant"].get<std::string>() + (is_planned ? " (planned)" : ""),
                   fmt::format("{:.3f}", variant["ms"].get<double>()),
                   fmt::format("{:.2f}", variant["over_best"].get<double>())});
      }
      cells.push_back(std::move(*cell));
    }
  }
  fmt::print("{}, {} x {}, one thread\n{}", kFormat, options.rows, options.cols, table.text());
  if (options.out.empty()) return 0;
  const Json receipt{{"command", cli::command_line()},
                     {"machine", cli::machine_json(*context)},
                     {"rows", options.rows},
                     {"cols", options.cols},
                     {"format", kFormat},
                     {"seed", options.seed},
                     {"sampling", fmt::format("{} fixtures, {} warm-up and {} measured cycles, order drawn anew",
                                              kFixtures, kWarmUp, kCycles)},
                     {"timed", "product alone; activations are in the kernel's form"},
                     {"cells", std::move(cells)}};
  Expected<OutputFile> file = OutputFile::create(options.out);
  if (!file) return fail_with(file);
  const std::string text = receipt.dump(1) + "\n";
  if (const Status done = file->write(std::as_bytes(std::span(text))); !done) return fail_with(done);
  if (const Status done = file->commit(); !done) return fail_with(done);
  return 0;
}

}  // namespace
}  // namespace octalane::bench

int main(int argc, char** argv) {
  octalane::bench::Options options;
  CLI::App app("Additive codebooks: decoding once for all tokens beside decoding again for every 16");
  app.add_option("--rows", options.rows)->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--cols", options.cols)->check(CLI::Range(int64_t{32}, int64_t{1} << 20));
  app.add_option("--tokens", options.tokens)->delimiter(',')->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  app.add_option("--lanes", options.lanes)->delimiter(',')->check(CLI::IsMember({"bf16", "s8.group"}));
  app.add_option("--isa", options.isa, "Force an instruction set");
  app.add_option("--rates", options.rates, "What the plan's choice is made from, as for octalane");
  app.add_option("--seed", options.seed);
  app.add_option("--out", options.out, "Write a receipt with all samples to this file");
  CLI11_PARSE(app, argc, argv);
  const octalane::Expected<int> done = octalane::bench::run(options);
  if (done) return *done;
  fmt::print(stderr, "additive_bench: error: {}\n", done.error().message);
  return 1;
}
