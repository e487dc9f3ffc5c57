// ppl -m MODEL -f TEXT: perplexity, and how far another lane's predictions are from it.
//
// The rule is llama.cpp's llama-perplexity: the text is cut into windows of `context` tokens, each run from an empty
// cache (its first token replaced by the begin token where the model wants one), and the second half of each window is
// scored: positions context / 2 .. context - 2 predict the token after them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/command.h"
#include "cli/inference.h"
#include "cli/terminal.h"
#include "core/parallel.h"
#include "files/npy.h"
#include "model/tokenizer.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, text, logits, against;
  int64_t context = 512, tokens = 0;
};

constexpr int64_t kBatch = 512;

/// log of the sum of exponentials, and the index of the largest value.
struct Normaliser {
  double log_sum = 0;
  int64_t top = 0;
};

Normaliser normaliser(std::span<const float> logits) {
  const auto top = std::ranges::max_element(logits);
  double sum = 0;
  for (const float value : logits) sum += std::exp(double{value} - double{*top});
  return {double{*top} + std::log(sum), top - logits.begin()};
}

/// KL divergence of q from p in nats: sum of p (log p - log q).
double divergence(std::span<const float> p, const Normaliser& of_p, std::span<const float> q, const Normaliser& of_q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - of_p.log_sum;
    sum += std::exp(log_p) * (log_p - (double{q[i]} - of_q.log_sum));
  }
  return sum;
}

/// Per scored position.
struct Scores {
  std::vector<double> loss;        ///< -log p of the token that follows
  std::vector<double> other_loss;  ///< the same by the other lane
  std::vector<double> kld;
  std::vector<char> same_top;
};

struct MeanAndError {
  double mean = 0, error = 0;  ///< standard error of the mean
};

MeanAndError mean_and_error(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count * (count - 1))) : NAN};
}

/// Runs windows through one model, or through two in turn.
class Scorer {
 public:
  Scorer(const Options& options, LoadedModel& base, LoadedModel* other, KvCache& cache)
      : options_(options),
        base_(base),
        other_(other),
        cache_(cache),
        first_(options.context / 2),
        rows_(options.context - first_),
        vocabulary_(base.model.config().vocabulary),
        logits_(static_cast<size_t>(rows_ * vocabulary_)),
        other_logits_(other != nullptr ? logits_.size() : 0) {}

  Status add_window(std::span<const int32_t> tokens) {
    if (const Status done = forward(base_, tokens, logits_); !done) return done;
    if (other_ != nullptr) {
      if (const Status done = forward(*other_, tokens, other_logits_); !done) return done;
    }
    const size_t before = scores.loss.size();
    const auto count = static_cast<size_t>(rows_ - 1);  // the last one predicts a token outside the window
    scores.loss.resize(before + count);
    if (other_ != nullptr) {
      scores.other_loss.resize(before + count);
      scores.kld.resize(before + count);
      scores.same_top.resize(before + count);
    }
    parallel_for(base_.context.threads(), rows_ - 1, 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        score(r, static_cast<size_t>(tokens[static_cast<size_t>(first_ + r + 1)]), before + static_cast<size_t>(r));
      }
    });
    if (!options_.logits.empty()) {
      kept_logits.insert(kept_logits.end(), logits_.begin(), logits_.end() - vocabulary_);
    }
    return {};
  }

  Scores scores;
  std::vector<float> kept_logits;

 private:
  Status forward(LoadedModel& loaded, std::span<const int32_t> tokens, std::vector<float>& logits) {
    cache_.truncate(0);
    const auto size = static_cast<int64_t>(tokens.size());
    for (int64_t begin = 0; begin < size; begin += kBatch) {
      const int64_t end = std::min(size, begin + kBatch);
      const int64_t from = std::clamp(first_, begin, end);
      float* out = logits.data() + std::max<int64_t>(0, from - first_) * vocabulary_;
      const Status done = loaded.model.forward(
          loaded.context, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), cache_,
          dense_view(out, end - from, vocabulary_));
      if (!done) return done;
    }
    return {};
  }

  void score(int64_t row, size_t next, size_t at) {
    const auto row_of = [&](const std::vector<float>& logits) {
      return std::span(logits).subspan(static_cast<size_t>(row * vocabulary_), static_cast<size_t>(vocabulary_));
    };
    const std::span<const float> p = row_of(logits_);
    const Normaliser of_p = normaliser(p);
    scores.loss[at] = of_p.log_sum - double{p[next]};
    if (other_ == nullptr) return;
    const std::span<const float> q = row_of(other_logits_);
    const Normaliser of_q = normaliser(q);
    scores.other_loss[at] = of_q.log_sum - double{q[next]};
    scores.kld[at] = divergence(p, of_p, q, of_q);
    scores.same_top[at] = of_p.top == of_q.top ? 1 : 0;
  }

  const Options& options_;
  LoadedModel& base_;
  LoadedModel* other_;
  KvCache& cache_;
  int64_t first_, rows_, vocabulary_;  // rows_ scored positions of a window, and one
  std::vector<float> logits_, other_logits_;
};

Expected<std::vector<int32_t>> text_tokens(const Options& options, const Tokenizer& tokenizer) {
  const Expected<std::string> text = read_text(options.text);
  if (!text) return fail_with(text);
  std::vector<int32_t> tokens = tokenizer.encode(*text);
  if (options.tokens > 0 && static_cast<int64_t>(tokens.size()) > options.tokens) {
    tokens.resize(static_cast<size_t>(options.tokens));
  }
  if (static_cast<int64_t>(tokens.size()) < options.context) {
    return fail("{}: wanted at least {} tokens, one window, got {}", options.text, options.context, tokens.size());
  }
  return tokens;
}

/// True when the tokenizer begins every text with the begin token.
bool adds_begin(const Tokenizer& tokenizer) {
  const std::vector<int32_t> empty = tokenizer.encode("");
  return tokenizer.bos() >= 0 && !empty.empty() && empty.front() == tokenizer.bos();
}

Status score_windows(const Options& options, const Tokenizer& tokenizer, std::vector<int32_t>& tokens, Scorer& scorer) {
  const InterruptScope scope;
  Progress progress;
  const int64_t windows = static_cast<int64_t>(tokens.size()) / options.context;
  for (int64_t w = 0; w < windows; ++w) {
    progress.show(fmt::format("window {} of {}", w + 1, windows));
    const std::span<int32_t> window =
        std::span(tokens).subspan(static_cast<size_t>(w * options.context), static_cast<size_t>(options.context));
    if (adds_begin(tokenizer)) window.front() = tokenizer.bos();
    if (const Status done = scorer.add_window(window); !done) return done;
    if (interrupted()) return fail("interrupted");
  }
  return {};
}

Json perplexity_json(const std::vector<double>& losses) {
  const MeanAndError loss = mean_and_error(losses);
  const double perplexity = std::exp(loss.mean);
  return {{"ppl", perplexity}, {"stderr", perplexity * loss.error}};
}

/// The other lane, paired position by position.
void add_comparison(const Options& options, const Scores& scores, Json& result) {
  std::vector<double> differences(scores.loss.size());
  for (size_t i = 0; i < differences.size(); ++i) differences[i] = scores.other_loss[i] - scores.loss[i];
  const MeanAndError difference = mean_and_error(differences);
  std::vector<double> sorted = scores.kld;
  std::ranges::sort(sorted);
  const MeanAndError kld = mean_and_error(sorted);
  const auto count = static_cast<double>(sorted.size());

  result["vs"] = perplexity_json(scores.other_loss);
  result["vs"]["lane"] = options.against;
  result["ppl_ratio"] = std::exp(difference.mean);
  result["ppl_ratio_stderr"] = std::exp(difference.mean) * difference.error;
  result["kld"] = {{"mean", kld.mean},
                   {"stderr", kld.error},
                   {"p99", sorted[static_cast<size_t>(std::ceil(0.99 * count)) - 1]},
                   {"max", sorted.back()}};
  result["top1"] = static_cast<double>(std::ranges::count(scores.same_top, 1)) / count;
}

void print_people(const Json& result) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  fmt::print("perplexity {:.4f} +- {:.4f} over {} tokens ({} windows of {}, second halves)\n", number(result["ppl"]),
             number(result["stderr"]), result["tokens"].get<size_t>(), result["windows"].get<int64_t>(),
             result["context"].get<int64_t>());
  if (!result.contains("vs")) return;
  const Json& vs = result["vs"];
  fmt::print("{}: {:.4f} +- {:.4f}, ratio {:.6f} +- {:.6f}\n", vs["lane"].get<std::string>(), number(vs["ppl"]),
             number(vs["stderr"]), number(result["ppl_ratio"]), number(result["ppl_ratio_stderr"]));
  fmt::print("KL divergence mean {:.6f} p99 {:.6f} max {:.6f}, same top token {:.2f} %\n",
             number(result["kld"]["mean"]), number(result["kld"]["p99"]), number(result["kld"]["max"]),
             100 * number(result["top1"]));
}

Expected<int> ppl(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  const Expected<Tokenizer> tokenizer = Tokenizer::load(file->metadata());
  if (!tokenizer) return fail("{}: {}", file->path(), tokenizer.error().message);
  Expected<std::vector<int32_t>> tokens = text_tokens(options, *tokenizer);
  if (!tokens) return fail_with(tokens);

  Expected<LoadedModel> base = load_model(options.common, *file);
  if (!base) return fail_with(base);
  if (options.context > base->model.config().context) {
    return fail("--context: wanted at most {}, what the model was trained for, got {}", base->model.config().context,
                options.context);
  }
  std::optional<LoadedModel> other;
  if (!options.against.empty()) {
    CommonOptions common = options.common;
    common.lane = options.against;
    Expected<LoadedModel> loaded = load_model(common, *file);
    if (!loaded) return fail_with(loaded);
    other.emplace(std::move(*loaded));
  }
  Expected<KvCache> cache = KvCache::create(base->model.config(), options.context);
  if (!cache) return fail_with(cache);
  Scorer scorer(options, *base, other ? &*other : nullptr, *cache);
  if (const Status done = score_windows(options, *tokenizer, *tokens, scorer); !done) return fail_with(done);

  Json result = perplexity_json(scorer.scores.loss);
  result["tokens"] = scorer.scores.loss.size();
  result["context"] = options.context;
  result["windows"] = static_cast<int64_t>(tokens->size()) / options.context;
  result["lane"] = options.common.lane;
  result["lanes"] = lanes_json(base->context);
  if (other) add_comparison(options, scorer.scores, result);
  if (!options.logits.empty()) {
    const auto rows = static_cast<int64_t>(scorer.scores.loss.size());
    const Status written = write_npy(
        options.logits, dense_view<const float>(scorer.kept_logits.data(), rows, base->model.config().vocabulary));
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
  flags.text("-m,--model", options->model, "A GGUF file", Need::required);
  flags.text("-f,--file", options->text, "The text; - is standard input", Need::required);
  flags.number("--context", options->context, 4, 1 << 24, "Tokens per window");
  flags.number("--tokens", options->tokens, 1, int64_t{1} << 40, "Use only the first tokens of the text");
  flags.text("--logits", options->logits,
             "Write the logits of the scored positions, float32 .npy [positions, vocabulary]; held in memory");
  flags.choice("--vs", options->against, lane_names(),
               "Another lane, paired with --lane for perplexity ratio, KL divergence and share of equal top tokens");
  flags.common(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return ppl(*options); }};
}

}  // namespace octalane::cli
