// run -m MODEL -p TEXT: prefill a prompt, decode an answer.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/inference.h"
#include "cli/machine.h"
#include "cli/terminal.h"
#include "core/fnv1a.h"
#include "model/chat.h"
#include "model/sampler.h"
#include "model/tokenizer.h"
#include "model/utf8_stream.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, prompt, file, system;
  bool chat = false, special = false, echo = false;
  int64_t count = 128, batch = 512, context = 0;
  SamplerOptions sampler;
};

struct Generation {
  std::vector<int32_t> tokens;
  std::string text;
  std::string finish;
  Fnv1a logits_hash;
  Phase prefill, decode;
  int64_t cache_bytes = 0;
};

Expected<std::vector<int32_t>> prompt_tokens(const Options& options, const Checkpoint& file,
                                             const Tokenizer& tokenizer) {
  std::string text = options.prompt;
  if (!options.file.empty()) {
    Expected<std::string> read = read_text(options.file);
    if (!read) return fail_with(read);
    text = std::move(*read);
  }
  if (options.echo && !options.common.json) fmt::print("{}", text);
  if (options.chat) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", std::move(text)});
    Expected<std::string> chat = format_chat(file.metadata(), messages);
    if (!chat) return fail("{}: {}", file.path(), chat.error().message);
    text = std::move(*chat);
  }
  std::vector<int32_t> tokens =
      tokenizer.encode(text, {.add_special = true, .parse_special = options.chat || options.special});
  if (tokens.empty()) return fail("prompt: wanted at least one token, got none");
  return tokens;
}

/// Positions of the KV cache: as asked, else what prompt and answer need, within what the model was trained for.
Expected<int64_t> context_size(const Options& options, const ModelConfig& config, int64_t prompt) {
  if (options.context > config.context) {
    return fail("--context: wanted at most {}, what the model was trained for, got {}", config.context,
                options.context);
  }
  const int64_t most = options.context > 0 ? options.context : config.context;
  if (prompt > most) return fail("prompt: wanted at most {} tokens, the context, got {}", most, prompt);
  if (options.context > 0 || options.count < 0) return most;
  return std::min(most, prompt + options.count);
}

class Generator {
 public:
  Generator(const Options& options, const Tokenizer& tokenizer, LoadedModel& loaded)
      : options_(options), tokenizer_(tokenizer), loaded_(loaded), sampler_(options.sampler) {}

  Expected<Generation> run(std::span<const int32_t> prompt, int64_t capacity) {
    Expected<KvCache> created = KvCache::create(loaded_.model.config(), capacity);
    if (!created) return fail_with(created);
    KvCache& cache = *created;
    std::vector<float> logits(static_cast<size_t>(loaded_.model.config().vocabulary));
    out_.cache_bytes = cache.bytes();
    const Expected<Phase> prefilled = prefill(loaded_, cache, prompt, options_.batch, logits);
    if (!prefilled) return fail_with(prefilled);
    out_.prefill = *prefilled;
    if (const Status done = answer(cache, logits); !done) return fail_with(done);
    emit(utf8_.flush());
    return std::move(out_);
  }

 private:
  Status answer(KvCache& cache, std::span<float> logits) {
    while (true) {
      if (interrupted()) return finish("interrupted");
      if (static_cast<int64_t>(out_.tokens.size()) == options_.count) return finish("length");
      const double start = now_seconds();
      const int32_t token = sampler_.sample(logits);
      out_.decode.seconds += now_seconds() - start;
      if (options_.common.json) out_.logits_hash.add(std::as_bytes(logits));
      if (tokenizer_.ends_generation(token)) return finish("stop");
      out_.tokens.push_back(token);
      emit(utf8_.feed(tokenizer_.decode(token)));
      if (static_cast<int64_t>(out_.tokens.size()) == options_.count) return finish("length");
      if (cache.size() == cache.capacity()) return finish("context");
      const double forward = now_seconds();
      if (const Status done = decode(loaded_, cache, token, logits); !done) return done;
      out_.decode.seconds += now_seconds() - forward;
      out_.decode.tokens += 1;
    }
  }

  Status finish(const char* reason) {
    out_.finish = reason;
    return {};
  }

  void emit(const std::string& text) {
    out_.text += text;
    if (options_.common.json || text.empty()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  const Options& options_;
  const Tokenizer& tokenizer_;
  LoadedModel& loaded_;
  Sampler sampler_;
  Utf8Stream utf8_;
  Generation out_;
};

Json document(const Checkpoint& file, const LoadedModel& loaded, const Generation& made) {
  return {{"text", made.text},
          {"tokens", made.tokens.size()},
          {"token_ids", made.tokens},
          {"finish", made.finish},
          {"prefill", phase_json(made.prefill)},
          {"decode", phase_json(made.decode)},
          {"lanes", lanes_json(loaded.context)},
          {"receipt", text_or_null(loaded.receipt)},
          {"kernels", kernels_json(loaded.context)},
          {"logits_hash", made.logits_hash.hex()},
          {"threads", loaded.context.threads()},
          {"file_bytes", file.file_bytes()},
          {"kv_cache_bytes", made.cache_bytes},
          {"peak_memory_bytes", known_or_null(peak_memory_bytes())}};
}

void print_summary(const LoadedModel& loaded, const Generation& made) {
  fmt::print(stderr, "\n{}prefill: {}\ndecode:  {}\n", made.finish == "interrupted" ? "interrupted\n" : "",
             phase_text(made.prefill), phase_text(made.decode));
  for (const Json& kernel : kernels_json(loaded.context)) {
    fmt::print(stderr, "{}: {} products, {:.1f} % of the operations\n", kernel["kernel"].get<std::string>(),
               kernel["calls"].get<int64_t>(), 100 * kernel["share"].get<double>());
  }
}

Expected<int> run(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  const Expected<Tokenizer> tokenizer = Tokenizer::load(*file);
  if (!tokenizer) return fail("{}: {}", file->path(), tokenizer.error().message);
  const Expected<std::vector<int32_t>> prompt = prompt_tokens(options, *file, *tokenizer);
  if (!prompt) return fail_with(prompt);

  const InterruptScope scope;
  Expected<LoadedModel> loaded = load_model(options.common, *file);
  if (!loaded) return fail_with(loaded);
  const Expected<int64_t> capacity =
      context_size(options, loaded->model.config(), static_cast<int64_t>(prompt->size()));
  if (!capacity) return fail_with(capacity);
  const Expected<Generation> made = Generator(options, *tokenizer, *loaded).run(*prompt, *capacity);
  if (!made) return fail_with(made);

  if (options.common.json) {
    print_json(document(*file, *loaded, *made));
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    print_summary(*loaded, *made);
  }
  return made->finish == "interrupted" ? kInterruptedExit : 0;
}

void add_sampling_flags(Flags& flags, SamplerOptions& sampler) {
  flags.number("--temp", sampler.temperature, 0.0f, 100.0f, "Temperature; 0 is greedy: always the likeliest token");
  flags.number("--top-k", sampler.top_k, 0, 1 << 30, "Draw from this many of the likeliest tokens; 0 = all");
  flags.number("--top-p", sampler.top_p, 0.0f, 1.0f, "Draw from the likeliest that hold this probability; 1 = all");
  flags.number("--min-p", sampler.min_p, 0.0f, 1.0f, "Draw from tokens of this share of the likeliest; 0 = all");
  flags.seed(sampler.seed, "Seed of the draws");
}

}  // namespace

Command run_command(CLI::App& parent) {
  constexpr int64_t kMost = 1 << 30;
  Flags flags(parent, "run", "Complete a prompt");
  flags.footer("The text goes to stdout, speed and kernels to stderr. Ctrl-C ends cleanly, with exit code 130.");
  auto options = std::make_shared<Options>();
  flags.text("-m,--model", options->model, kModelHelp, Need::required);
  flags.either("-p,--prompt", options->prompt, "The prompt", "-f,--file", options->file,
               "A file that holds the prompt; - is standard input");
  flags.number("-n,--count", options->count, -1, kMost, "Most tokens to make; -1 = until the context is full");
  flags.toggle("--chat", options->chat, "The prompt is a user's message: use the model's chat template");
  flags.text("--system", options->system, "System message of --chat");
  flags.toggle("--special", options->special, "Control tokens written in the prompt become those tokens");
  flags.toggle("--echo", options->echo, "Print the prompt before the answer");
  flags.number("--batch", options->batch, 1, kMost, "Tokens per prefill call; 1 = token by token");
  flags.number("-c,--context", options->context, 1, kMost,
               "Positions of the KV cache (default: prompt and answer, at most what the model was trained for)");
  add_sampling_flags(flags, options->sampler);
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.receipt(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return run(*options); }};
}

}  // namespace octalane::cli
