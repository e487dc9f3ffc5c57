// ppl -m MODEL -f TEXT: perplexity, and how far another lane's predictions are from it. The rule is in gate/score.h.
#include <fmt/format.h>

#include <cmath>

#include "cli/command.h"
#include "cli/inference.h"
#include "cli/lanes.h"
#include "cli/scoring.h"
#include "cli/terminal.h"
#include "files/npy.h"
#include "gate/score.h"
#include "model/tokenizer.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, text, logits, against;
  TextOptions scored;
};

/// Scores every window; keeps the base's logits when they are wanted.
Status score_windows(const ScoredText& text, int64_t context, Scorer& scorer, std::vector<float>* kept_logits) {
  const InterruptScope scope;
  Progress progress;
  const std::span<const int32_t> tokens = text.tokens;
  const size_t window = static_cast<size_t>(context), windows = tokens.size() / window;
  for (size_t w = 0; w < windows; ++w) {
    progress.show(fmt::format("window {} of {}", w + 1, windows));
    if (const Status done = scorer.add_window(tokens.subspan(w * window, window)); !done) return done;
    if (kept_logits != nullptr) {
      const std::span<const float> logits = scorer.base_logits();
      kept_logits->insert(kept_logits->end(), logits.begin(), logits.end());
    }
    if (interrupted()) return fail("interrupted");
  }
  return {};
}

Json perplexity_json(const std::vector<double>& losses) {
  const MeanAndError loss = mean_and_error(losses);
  const double perplexity = std::exp(loss.mean);
  return {{"ppl", perplexity}, {"stderr", perplexity * loss.error}};
}

Json comparison_json(const Comparison& c) {
  return {{"ppl_ratio", c.ppl_ratio},
          {"ppl_ratio_stderr", c.ppl_ratio_error},
          {"kld", {{"mean", c.kld_mean}, {"stderr", c.kld_error}, {"p99", c.kld_p99}, {"max", c.kld_max}}},
          {"top1", c.top1}};
}

/// The other lane, paired position by position, and what the base is from itself.
void add_comparison(const Options& options, const Scorer& scorer, Json& result) {
  result["vs"] = perplexity_json(scorer.other(0).loss);
  result["vs"]["lane"] = options.against;
  result.update(comparison_json(compare(scorer.base(), scorer.other(0))));
  result["noise_floor"] = comparison_json(compare(scorer.base(), scorer.other(1)));
}

double number(const Json& value) { return value.is_number() ? value.get<double>() : NAN; }

void print_comparison(const Json& figures) {
  fmt::print("KL divergence mean {:.6f} p99 {:.6f} max {:.6f}, same top token {:.2f} %\n",
             number(figures["kld"]["mean"]), number(figures["kld"]["p99"]), number(figures["kld"]["max"]),
             100 * number(figures["top1"]));
}

void print_people(const Json& result) {
  fmt::print("perplexity {:.4f} +- {:.4f} over {} tokens ({} windows of {}, second halves)\n", number(result["ppl"]),
             number(result["stderr"]), result["tokens"].get<size_t>(), result["windows"].get<int64_t>(),
             result["context"].get<int64_t>());
  if (!result.contains("vs")) return;
  const Json& vs = result["vs"];
  fmt::print("{}: {:.4f} +- {:.4f}, ratio {:.6f} +- {:.6f}\n", vs["lane"].get<std::string>(), number(vs["ppl"]),
             number(vs["stderr"]), number(result["ppl_ratio"]), number(result["ppl_ratio_stderr"]));
  print_comparison(result);
  fmt::print("noise floor ({} against itself, windows split otherwise): ratio {:.6f}, ",
             result["lane"].get<std::string>(), number(result["noise_floor"]["ppl_ratio"]));
  print_comparison(result["noise_floor"]);
}

/// The same weights on the other lane, by its name alone or, for auto, by the receipt.
Expected<LoadedModel> load_other(const Options& options, const Checkpoint& file, const Model& base) {
  CommonOptions against = options.common;
  against.lane = options.against;
  against.lanes = "";
  const Expected<ObeyedLanes> lanes = find_lanes(against, file);
  if (!lanes) return fail_with(lanes);
  Expected<Context> context = make_context(against, matrix_formats(file), Unmeasured::measure, lanes->rules);
  if (!context) return fail_with(context);
  Expected<Model> model =
      base.with_lanes(*context, [&](const Linear& weights) { return context->lanes_of(weights.name()); });
  if (!model) return fail("{}: {}", file.path(), model.error().message);
  return LoadedModel{std::move(*context), std::move(*model), lanes->receipt};
}

Expected<int> ppl(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  const Expected<Tokenizer> tokenizer = Tokenizer::load(*file);
  if (!tokenizer) return fail("{}: {}", file->path(), tokenizer.error().message);
  const Expected<ModelConfig> config = read_model_config(*file);
  if (!config) return fail("{}: {}", file->path(), config.error().message);
  const Expected<ScoredText> text = read_scored_text(options.text, options.scored, *tokenizer, config->context);
  if (!text) return fail_with(text);

  Expected<LoadedModel> base = load_model(options.common, *file);
  if (!base) return fail_with(base);
  std::optional<LoadedModel> other;
  std::optional<Context> floor_context;  // so that what the noise floor runs is not counted
  std::vector<Scored> others;
  if (!options.against.empty()) {
    Expected<LoadedModel> bound = load_other(options, *file, base->model);
    if (!bound) return fail_with(bound);
    Expected<Context> again = make_context(options.common, matrix_formats(*file));
    if (!again) return fail_with(again);
    other.emplace(std::move(*bound));
    floor_context.emplace(std::move(*again));
    others = {{&other->context, &other->model}, {&*floor_context, &base->model, other_batch(options.scored.context)}};
  }
  Expected<Scorer> scorer = Scorer::create({&base->context, &base->model}, others, options.scored.context);
  if (!scorer) return fail_with(scorer);
  std::vector<float> logits;
  std::vector<float>* kept = options.logits.empty() ? nullptr : &logits;
  const Status done = score_windows(*text, options.scored.context, *scorer, kept);
  if (!done) return fail_with(done);

  Json result = perplexity_json(scorer->base().loss);
  result["tokens"] = scorer->base().loss.size();
  result["context"] = options.scored.context;
  result["windows"] = static_cast<int64_t>(text->tokens.size()) / options.scored.context;
  result["lane"] = options.common.lane;
  result["lanes"] = lanes_json(base->context);
  result["receipt"] = text_or_null(base->receipt);
  if (other) {
    add_comparison(options, *scorer, result);
    result["vs"]["receipt"] = text_or_null(other->receipt);
  }
  if (kept != nullptr) {
    const auto rows = static_cast<int64_t>(scorer->base().loss.size());
    const Status written = write_npy(options.logits, dense_view<const float>(logits.data(), rows, config->vocabulary));
    if (!written) return fail_with(written);
  }
  if (options.common.json) {
    print_json(result);
  } else {
    print_people(result);
  }
  return 0;
}

}  // namespace

Command ppl_command(CLI::App& parent) {
  Flags flags(parent, "ppl", "Measure the perplexity of a text");
  flags.footer(
      "By llama.cpp's rule: windows of --context tokens, each from an empty cache, the second half of each scored. The "
      "standard error is that of the mean loss over the scored tokens, times the perplexity.");
  auto options = std::make_shared<Options>();
  flags.text("-m,--model", options->model, kModelHelp, Need::required);
  flags.text("-f,--file", options->text, "The text; - is standard input", Need::required);
  flags.number("--context", options->scored.context, 4, 1 << 24, "Tokens per window");
  flags.number("--tokens", options->scored.tokens, 1, int64_t{1} << 40, "Use only the first tokens of the text");
  flags.text("--logits", options->logits,
             "Write the logits of the scored positions, float32 .npy [positions, vocabulary]; held in memory");
  flags.choice("--vs", options->against, lane_names(),
               "Another lane, paired with --lane for perplexity ratio, KL divergence and share of equal top tokens");
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.receipt(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return ppl(*options); }};
}

}  // namespace octalane::cli
