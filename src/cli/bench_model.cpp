// bench model -m MODEL: prefill and decode speed over prompt lengths.
#include <fmt/format.h>

#include <random>

#include "cli/command.h"
#include "cli/inference.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, form = "md";
  std::vector<int64_t> prompts{32, 128, 512}, generate{64};
  int64_t repeats = 3, batch = 512;
  uint64_t seed = 1;
};

struct Row {
  std::string test;
  int64_t tokens;
  bool is_prefill;
  std::vector<double> seconds;
};

std::vector<Row> list_rows(const Options& options) {
  std::vector<Row> rows;
  for (const int64_t tokens : options.prompts) rows.push_back({fmt::format("prefill {}", tokens), tokens, true, {}});
  for (const int64_t tokens : options.generate) rows.push_back({fmt::format("decode {}", tokens), tokens, false, {}});
  return rows;
}

/// Tokens from a seed: speed does not depend on which.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  return tokens;
}

/// Seconds for one row, from an empty cache.
Expected<double> measure(const Options& options, LoadedModel& loaded, KvCache& cache, const Row& row) {
  const int64_t vocabulary = loaded.model.config().vocabulary;
  const std::vector<int32_t> tokens = random_tokens(row.tokens, vocabulary, options.seed);
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  cache.truncate(0);
  if (row.is_prefill) {
    const Expected<Phase> phase = prefill(loaded, cache, tokens, options.batch, logits);
    if (!phase) return fail_with(phase);
    return phase->seconds;
  }
  const double start = now_seconds();
  for (const int32_t token : tokens) {
    if (interrupted()) break;
    if (const Status done = decode(loaded, cache, token, logits); !done) return fail_with(done);
  }
  return now_seconds() - start;
}

/// Repeats go round all rows, so that a drifting machine touches them alike; the first round is a warm-up.
Status measure_all(const Options& options, LoadedModel& loaded, std::vector<Row>& rows) {
  int64_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.tokens);
  if (longest > loaded.model.config().context) {
    return fail("{} tokens: wanted at most {}, what the model was trained for", longest, loaded.model.config().context);
  }
  const InterruptScope scope;
  Progress progress;
  Expected<KvCache> cache = KvCache::create(loaded.model.config(), longest);
  if (!cache) return fail_with(cache);
  for (int64_t repeat = -1; repeat < options.repeats; ++repeat) {
    for (Row& row : rows) {
      progress.show(repeat < 0 ? fmt::format("warm-up: {}", row.test)
                               : fmt::format("repeat {} of {}: {}", repeat + 1, options.repeats, row.test));
      const Expected<double> seconds = measure(options, loaded, *cache, row);
      if (!seconds) return fail_with(seconds);
      if (interrupted()) return fail("interrupted");
      if (repeat >= 0) row.seconds.push_back(*seconds);
    }
  }
  return {};
}

Json row_json(const Row& row) {
  std::vector<double> rates;
  for (const double seconds : row.seconds) rates.push_back(static_cast<double>(row.tokens) / seconds);
  return {{"test", row.test},
          {"phase", row.is_prefill ? "prefill" : "decode"},
          {"tokens", row.tokens},
          {"tokens_per_second", spread_json(rates)},
          {"samples_seconds", row.seconds}};
}

Table table(const Json& rows) {
  Table out({{"test"},
             {"tokens/s", Table::Align::right},
             {"min", Table::Align::right},
             {"max", Table::Align::right},
             {"repeats", Table::Align::right}});
  for (const Json& row : rows) {
    const Json& rate = row["tokens_per_second"];
    const auto text = [&](const char* key) { return fmt::format("{:.2f}", rate[key].get<double>()); };
    out.add({row["test"].get<std::string>(), text("median"), text("min"), text("max"),
             fmt::format("{}", row["samples_seconds"].size())});
  }
  return out;
}

Expected<int> bench_model(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  Expected<LoadedModel> loaded = load_model(options.common, *file);
  if (!loaded) return fail_with(loaded);
  std::vector<Row> measured = list_rows(options);
  if (const Status done = measure_all(options, *loaded, measured); !done) return fail_with(done);
  Json rows = Json::array();
  for (const Row& row : measured) rows.push_back(row_json(row));

  if (options.common.json || options.form == "json") {
    print_json({{"command", command_line()},
                {"machine", machine_json(loaded->context)},
                {"model", file->path()},
                {"architecture", loaded->model.config().architecture},
                {"file_bytes", file->file_bytes()},
                {"peak_memory_bytes", known_or_null(peak_memory_bytes())},
                {"threads", loaded->context.threads()},
                {"lane_asked", options.common.lane},
                {"lanes_asked", text_or_null(options.common.lanes)},
                {"receipt", text_or_null(loaded->receipt)},
                {"isa_asked", options.common.isa.empty() ? Json() : Json(options.common.isa)},
                {"batch", options.batch},
                {"warm_up_rounds", 1},
                {"repeats", options.repeats},
                {"seed", options.seed},
                {"kernels", kernels_json(loaded->context)},
                {"rows", std::move(rows)}});
  } else if (options.form == "csv") {
    fmt::print("{}", table(rows).csv());
  } else {
    fmt::print("{}", table(rows).markdown());
  }
  return 0;
}

}  // namespace

Command bench_model_command(CLI::App& bench) {
  Flags flags(bench, "model", "Time prefill and decode of a model");
  flags.footer("Tokens per second, each test from an empty cache; repeats go round all tests after one warm-up round.");
  auto options = std::make_shared<Options>();
  flags.text("-m,--model", options->model, kModelHelp, Need::required);
  flags.numbers("--prompt", options->prompts, "Prompt lengths");
  flags.numbers("--generate", options->generate, "Tokens to decode one by one");
  flags.number("--repeats", options->repeats, 1, 1000, "Measurements, after one warm-up");
  flags.number("--batch", options->batch, 1, 1 << 30, "Tokens per prefill call");
  flags.seed(options->seed, "Seed of the tokens");
  flags.choice("-o,--output", options->form, {"md", "csv", "json"}, "How to print");
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.receipt(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return bench_model(*options); }};
}

}  // namespace octalane::cli
