// gate -m MODEL -f TEXT: judges every lossy lane on a model, and writes down which of them may run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include "cli/command.h"
#include "cli/commit.h"
#include "cli/inference.h"
#include "cli/machine.h"
#include "cli/scoring.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "gate/fingerprint.h"
#include "gate/receipt.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, output, layers, mixed, by = "tensor";
  std::vector<std::string> texts, lanes;
  TextOptions scored;
  Thresholds thresholds;
};

std::vector<std::string> lossy_lanes() {
  std::vector<std::string> names;
  for (const StagedTypeInfo& row : kStagedTypes) {
    if (!row.stock) names.emplace_back(row.name);
  }
  return names;
}

/// The date in UTC, YYYY-MM-DD.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

/// One run of the gate: what is judged, and the receipt as it grows.
class Gate {
 public:
  Gate(const Options& options, LoadedModel& stock, std::vector<Text> texts)
      : options_(options),
        context_(stock.context),
        model_(stock.model),
        judge_(context_, model_, std::move(texts), options.scored.context,
               [this](int64_t done, int64_t all) { return show(done, all); }) {}

  Expected<Receipt> run() {
    receipt_.thresholds = options_.thresholds;
    receipt_.window = judge_.window();
    for (const Text& text : judge_.texts()) {
      const auto tokens = static_cast<int64_t>(text.tokens.size()), windows = tokens / judge_.window();
      receipt_.texts.push_back({text.name, text.hash, tokens, windows * (judge_.window() - judge_.window() / 2 - 1)});
    }
    stage_ = "noise floor";
    Expected<std::vector<Comparison>> noise = judge_.noise_floor();
    if (!noise) return fail_with(noise);
    receipt_.noise_floor = std::move(*noise);
    if (const Status done = judge_lanes(); !done) return fail_with(done);
    if (const Status done = report_layers(); !done) return fail_with(done);
    if (const Status done = mix(); !done) return fail_with(done);
    return std::move(receipt_);
  }

 private:
  bool show(int64_t done, int64_t all) {
    progress_.show(fmt::format("{}: window {} of {}", stage_, done + 1, all));
    return !interrupted();
  }

  LaneJudgement judged(StagedType lane, std::vector<KeptStock> stock) const {
    LaneJudgement out{lane, {}, std::move(stock), 0, ""};
    out.served = static_cast<int64_t>(model_.linears().size() - out.stock.size());
    if (out.served == 0) out.fails = "no tensor of the model may take this lane";
    return out;
  }

  void take_figures(std::vector<Comparison> texts, LaneJudgement& lane) const {
    lane.fails = why_fails(worst_of(texts), options_.thresholds);
    lane.texts = std::move(texts);
  }

  /// All lanes on each window in turn, so that the stock path runs once.
  Status judge_lanes() {
    std::vector<Model> models;
    std::vector<size_t> places;
    for (const std::string& name : options_.lanes) {
      const StagedType lane = *staged_type_from_name(name);
      receipt_.lanes.push_back(judged(lane, not_served(context_, model_, lane)));
      const LaneJudgement& judgement = receipt_.lanes.back();
      if (judgement.served == 0) continue;
      std::set<std::string> stock;
      for (const KeptStock& kept : judgement.stock) stock.insert(kept.tensor);
      Expected<Model> model = with_lane(context_, model_, lane, stock);
      if (!model) return fail_with(model);
      models.push_back(std::move(*model));
      places.push_back(receipt_.lanes.size() - 1);
    }
    if (models.empty()) return {};
    stage_ = fmt::format("{} lanes", models.size());
    std::vector<Scored> candidates;
    for (const Model& model : models) candidates.push_back({&context_, &model});
    Expected<std::vector<std::vector<Comparison>>> figures = judge_.compare(std::move(candidates));
    if (!figures) return fail_with(figures);
    for (size_t i = 0; i < places.size(); ++i) take_figures(std::move((*figures)[i]), receipt_.lanes[places[i]]);
    return {};
  }

  /// Groups of tensors, the most hurtful first, with what each costs alone.
  Expected<std::vector<TensorGroup>> ranked(StagedType lane, const std::vector<KeptStock>& stock,
                                            std::vector<Comparison>& alone) {
    stage_ = fmt::format("{}, each {} alone", name(lane), options_.by);
    std::vector<TensorGroup> groups =
        tensor_groups(model_, stock, options_.by == "block" ? GroupBy::block : GroupBy::tensor);
    if (groups.empty()) return fail("{}: no tensor of the model can take this lane", name(lane));
    const Expected<std::vector<Comparison>> figures = judge_.alone(lane, groups);
    if (!figures) return fail_with(figures);
    std::vector<size_t> order(groups.size());
    std::iota(order.begin(), order.end(), 0);
    const auto hurt = [&](size_t i) {
      const double kld = (*figures)[i].kld_mean;
      return std::isnan(kld) ? INFINITY : kld;
    };
    std::ranges::stable_sort(order, std::ranges::greater(), hurt);
    std::vector<TensorGroup> sorted;
    for (const size_t i : order) {
      sorted.push_back(std::move(groups[i]));
      alone.push_back((*figures)[i]);
    }
    return sorted;
  }

  Status report_layers() {
    if (options_.layers.empty()) return {};
    const StagedType lane = *staged_type_from_name(options_.layers);
    std::vector<Comparison> alone;
    const Expected<std::vector<TensorGroup>> groups = ranked(lane, not_served(context_, model_, lane), alone);
    if (!groups) return fail_with(groups);
    receipt_.layers_lane = lane;
    for (size_t i = 0; i < groups->size(); ++i) {
      const TensorGroup& group = (*groups)[i];
      receipt_.layers.push_back({group.name, static_cast<int64_t>(group.tensors.size()), alone[i]});
    }
    return {};
  }

  Status mix() {
    if (options_.mixed.empty()) return {};
    const StagedType lane = *staged_type_from_name(options_.mixed);
    std::vector<KeptStock> stock = not_served(context_, model_, lane);
    std::vector<Comparison> alone;
    const Expected<std::vector<TensorGroup>> order = ranked(lane, stock, alone);
    if (!order) return fail_with(order);
    stage_ = fmt::format("mixing {}", name(lane));
    Expected<MixedPlan> plan = find_mixed(context_, model_, judge_, lane, stock, *order, options_.thresholds);
    if (!plan) return fail_with(plan);
    for (std::string& tensor : plan->stock) {
      stock.push_back({std::move(tensor), "left out so that the others pass"});
    }
    receipt_.mixed = judged(lane, std::move(stock));
    if (!plan->texts.empty()) take_figures(std::move(plan->texts), *receipt_.mixed);
    return {};
  }

  const Options& options_;
  Context& context_;
  const Model& model_;
  Progress progress_;
  std::string stage_;
  Judge judge_;
  Receipt receipt_;
};

void add_row(Table& table, const std::string& name, const std::vector<Comparison>& texts, int64_t tensors,
             const std::string& said) {
  if (texts.empty()) return table.add({name, "-", "-", "-", "-", "-", said});
  const Comparison worst = worst_of(texts);
  table.add({name, fmt::format("{}", tensors), fmt::format("{:.6f}", worst.ppl_ratio),
             fmt::format("{:.6f}", worst.kld_mean), fmt::format("{:.6f}", worst.kld_p99),
             fmt::format("{:.4f}", worst.top1), said});
}

void print_people(const Receipt& receipt, const std::string& path) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"lane"},
               {"tensors", kRight},
               {"ppl ratio", kRight},
               {"KLD mean", kRight},
               {"KLD p99", kRight},
               {"same top", kRight},
               {"verdict"}});
  add_row(table, "stock, split otherwise", receipt.noise_floor, 0, "noise floor");
  for (const LaneJudgement& lane : receipt.lanes) {
    add_row(table, std::string(name(lane.staged)), lane.texts, lane.served, verdict(lane));
  }
  if (receipt.mixed) {
    add_row(table, fmt::format("{}, mixed", name(receipt.mixed->staged)), receipt.mixed->texts, receipt.mixed->served,
            verdict(*receipt.mixed));
  }
  fmt::print("{}\n", table.text());
  for (const LaneJudgement& lane : receipt.lanes) {
    if (!lane.fails.empty()) fmt::print("{}: {}\n", name(lane.staged), lane.fails);
    for (const KeptStock& kept : lane.stock) {
      if (lane.served > 0) fmt::print("{}: {} stays stock: {}\n", name(lane.staged), kept.tensor, kept.why);
    }
  }
  for (const LayerScore& layer : receipt.layers) {
    fmt::print("{} alone: KLD mean {:.6f} ({} tensors)\n", layer.name, layer.worst.kld_mean, layer.tensors);
  }
  fmt::print("\nwritten to {}\n", path);
}

Expected<std::vector<Text>> read_texts(const Options& options, const Checkpoint& file) {
  const Expected<Tokenizer> tokenizer = Tokenizer::load(file.metadata());
  if (!tokenizer) return fail("{}: {}", file.path(), tokenizer.error().message);
  const Expected<ModelConfig> config = read_model_config(file);
  if (!config) return fail("{}: {}", file.path(), config.error().message);
  std::vector<Text> texts;
  for (const std::string& path : options.texts) {
    Expected<ScoredText> text = read_scored_text(path, options.scored, *tokenizer, config->context);
    if (!text) return fail_with(text);
    texts.push_back({path, text->hash, std::move(text->tokens)});
  }
  return texts;
}

Expected<int> gate(Options options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  Expected<std::vector<Text>> texts = read_texts(options, *file);
  if (!texts) return fail_with(texts);
  if (options.lanes.empty()) options.lanes = lossy_lanes();
  if (options.output.empty()) options.output = receipt_path(file->path());

  const InterruptScope scope;
  options.common.lane = name(StagedType::bf16);
  Expected<LoadedModel> stock = load_model(options.common, *file);
  if (!stock) return fail_with(stock);
  Expected<Receipt> receipt = Gate(options, *stock, std::move(*texts)).run();
  if (!receipt) return fail_with(receipt);
  receipt->version = OCTALANE_VERSION;
  receipt->commit = kCommit;
  receipt->date = today();
  receipt->command = command_line();
  receipt->model = file->path();
  receipt->fingerprint = model_fingerprint(*file);
  if (const Status written = write_receipt(options.output, *receipt); !written) return fail_with(written);
  if (options.common.json) {
    fmt::print("{}", receipt_text(*receipt));
  } else {
    print_people(*receipt, options.output);
  }
  return 0;
}

}  // namespace

Command gate_command(CLI::App& parent) {
  Flags flags(parent, "gate", "Judge every lossy lane on a model, and write down which may run");
  flags.footer(
      "Each lane is compared with the stock path on every text by the rule of ppl, and passes when the worst text "
      "keeps "
      "within all three thresholds. Lanes that pass are taken by run, plan, ppl and bench model with --lane auto, as "
      "long as model and octalane stay the same. Exit code 0 whatever the verdicts.");
  auto options = std::make_shared<Options>();
  flags.text("-m,--model", options->model, "A model", Need::required);
  flags.texts("-f,--file", options->texts, "A text", Need::required);
  flags.text("-o,--output", options->output, "Where the receipt goes (default: MODEL.lanes.json)");
  flags.choices("--lane", options->lanes, lossy_lanes(), "Judge only these");
  flags.number("--max-ppl-ratio", options->thresholds.max_ppl_ratio, 0.0, 1e6, "Most perplexity over stock's");
  flags.number("--max-kld", options->thresholds.max_kld, 0.0, 1e6, "Most mean KL divergence, nats");
  flags.number("--min-top1", options->thresholds.min_top1, 0.0, 1.0, "Least share of positions with stock's top token");
  flags.number("--context", options->scored.context, 4, 1 << 24, "Tokens per window");
  flags.number("--tokens", options->scored.tokens, 1, int64_t{1} << 40, "Use only the first tokens of each text");
  flags.choice("--layers", options->layers, lossy_lanes(), "Report what each tensor alone costs in one lane");
  flags.choice("--mixed", options->mixed, lossy_lanes(),
               "Find the fewest tensors to leave on the stock path so that the others pass in one lane");
  flags.choice("--by", options->by, {"tensor", "block"}, "What --layers and --mixed switch");
  flags.machine(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return gate(*options); }};
}

}  // namespace octalane::cli
