#include "cli/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/lanes.h"
#include "cli/machine.h"
#include "cli/terminal.h"
#include "files/quote.h"

namespace octalane::cli {

namespace {

/// One line on stderr when tensors run in another lane than the one asked for.
void tell_fallbacks(const Model& model) {
  const Linear* first = nullptr;
  int64_t count = 0;
  for (const Linear* linear : model.linears()) {
    if (linear->fallback().empty()) continue;
    if (++count == 1) first = linear;
  }
  if (count == 0) return;
  fmt::print(stderr, "octalane: {} of {} matrices in another lane, the first {}: {}\n", count, model.linears().size(),
             quote(first->name()), first->fallback());
}

}  // namespace

Expected<LoadedModel> load_model(const CommonOptions& options, const Checkpoint& file) {
  const Expected<ObeyedLanes> lanes = find_lanes(options, file);
  if (!lanes) return fail_with(lanes);
  Expected<Context> context = make_context(options, matrix_formats(file), Unmeasured::measure, lanes->rules);
  if (!context) return fail_with(context);
  name_receipt(options, *lanes);
  Progress progress;
  progress.show(fmt::format("loading {}", file.path()));
  Expected<Model> model = Model::load(*context, file);
  if (!model) return fail("{}: {}", file.path(), model.error().message);
  tell_fallbacks(*model);
  return LoadedModel{std::move(*context), std::move(*model), lanes->receipt};
}

Expected<std::string> read_text(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(path == "-" ? nullptr : std::fopen(path.c_str(), "rb"),
                                                               [](std::FILE* file) { return std::fclose(file); });
  std::FILE* file = path == "-" ? stdin : opened.get();
  if (file == nullptr) return fail("{}: cannot read: {}", path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  for (size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, count);
  if (std::ferror(file) != 0) return fail("{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

Json phase_json(const Phase& phase) {
  Json rate;
  if (phase.tokens > 0 && phase.seconds > 0) rate = static_cast<double>(phase.tokens) / phase.seconds;
  return {{"tokens", phase.tokens}, {"seconds", phase.seconds}, {"tokens_per_second", std::move(rate)}};
}

std::string phase_text(const Phase& phase) {
  if (phase.tokens == 0) return "0 tokens";
  return fmt::format("{} tokens in {:.3f} s, {:.2f} tokens/s", phase.tokens, phase.seconds,
                     static_cast<double>(phase.tokens) / phase.seconds);
}

Expected<Phase> prefill(LoadedModel& loaded, KvCache& cache, std::span<const int32_t> tokens, int64_t batch,
                        std::span<float> logits) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  Progress progress;
  Phase phase;
  const double start = now_seconds();
  while (!tokens.empty() && !interrupted()) {
    const std::span<const int32_t> part = tokens.first(std::min(tokens.size(), static_cast<size_t>(batch)));
    tokens = tokens.subspan(part.size());
    const int64_t rows = tokens.empty() ? 1 : 0;
    const Status done = loaded.model.forward(loaded.context, part, cache, dense_view(logits.data(), rows, vocabulary));
    if (!done) return fail_with(done);
    phase.tokens += static_cast<int64_t>(part.size());
    progress.show(fmt::format("prefill: {} tokens, {} to go", phase.tokens, tokens.size()));
  }
  phase.seconds = now_seconds() - start;
  return phase;
}

Status decode(LoadedModel& loaded, KvCache& cache, int32_t token, std::span<float> logits) {
  return loaded.model.forward(loaded.context, {&token, 1}, cache,
                              dense_view(logits.data(), 1, static_cast<int64_t>(logits.size())));
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json lanes_json(const Context& context) {
  Json lanes = Json::object();
  for (const auto& [kernel, use] : context.uses()) {
    Json& ops = lanes[std::string(name(use.staged))];
    ops = use.ops + (ops.is_null() ? 0.0 : ops.get<double>());
  }
  return lanes;
}

Json kernels_json(const Context& context) {
  double all = 0;
  for (const auto& [kernel, use] : context.uses()) all += use.ops;
  Json kernels = Json::array();
  for (const auto& [kernel, use] : context.uses()) {
    kernels.push_back({{"kernel", kernel},
                       {"staged", name(use.staged)},
                       {"calls", use.calls},
                       {"ops", use.ops},
                       {"share", all > 0 ? use.ops / all : 0.0},
                       {"fallback", use.fallback.empty() ? Json() : Json(use.fallback)}});
  }
  return kernels;
}

}  // namespace octalane::cli
