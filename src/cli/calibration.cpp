#include "cli/calibration.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/scoring.h"
#include "cli/terminal.h"
#include "core/fnv1a.h"
#include "files/quote.h"
#include "gate/fingerprint.h"
#include "model/model.h"
#include "model/tokenizer.h"

namespace octalane::cli {
namespace {

constexpr int64_t kWindow = 512;

}  // namespace

Expected<Calibration> Calibration::read(const CommonOptions& common, const CalibrationOptions& options,
                                        const Checkpoint& file) {
  const Expected<Tokenizer> tokenizer = Tokenizer::load(file);
  if (!tokenizer) return fail("{}: {}", file.path(), tokenizer.error().message);
  const Expected<ModelConfig> config = read_model_config(file);
  if (!config) return fail("{}: {}", file.path(), config.error().message);
  Calibration out;
  out.common_ = common;
  out.common_.lane = "auto";
  out.window_ = std::min(kWindow, config->context);
  const int64_t tokens = std::max(options.tokens, out.window_);
  Expected<ScoredText> text = read_scored_text(options.text, {out.window_, tokens}, *tokenizer, config->context);
  if (!text) return fail_with(text);
  out.tokens_ = std::move(text->tokens);
  Fnv1a hash;
  hash.add(model_fingerprint(file));
  hash.add(std::as_bytes(std::span(out.tokens_)));
  out.key_ = hash.hex();
  return out;
}

Expected<const SecondMoments*> Calibration::moments(const Checkpoint& file,
                                                    const std::vector<std::string_view>& products) {
  auto found = held_.find(products[0]);
  if (found == held_.end()) {
    held_.clear();
    if (const Status done = gather(file, products); !done) return fail_with(done);
    found = held_.find(products[0]);
    if (found == held_.end()) {
      return fail("{}: tensor {}: the model multiplies by no such matrix", file.path(), quote(products[0]));
    }
  }
  return found->second.get();
}

Status Calibration::gather(const Checkpoint& file, const std::vector<std::string_view>& products) {
  Expected<Context> context = make_context(common_);
  if (!context) return fail_with(context);
  Progress progress;
  progress.show(fmt::format("calibrating: loading {}", file.path()));
  const Expected<Model> model = Model::load(*context, file);
  if (!model) return fail("{}: {}", file.path(), model.error().message);
  Expected<KvCache> cache = KvCache::create(model->config(), window_);
  if (!cache) return fail_with(cache);

  // What is wanted, in its order, until the memory is full.
  std::map<std::string_view, const Linear*> all;
  for (const Linear* linear : model->linears()) all.emplace(linear->name(), linear);
  int64_t bytes = 0;
  std::vector<std::string_view> taken;
  for (const std::string_view name : products) {
    const auto linear = all.find(name);
    if (linear == all.end()) continue;
    const int64_t more = SecondMoments::bytes(linear->second->cols());
    if (bytes > 0 && bytes + more > kMomentBytes) break;
    bytes += more;  // as if no input were shared
    taken.push_back(name);
  }
  std::ranges::sort(taken);

  const auto observe = [&](std::span<const Linear* const> shared, MatrixView<const float> x) {
    const auto is_taken = [&](const Linear* linear) { return std::ranges::binary_search(taken, linear->name()); };
    if (std::ranges::none_of(shared, is_taken)) return;
    std::shared_ptr<SecondMoments>& sums = held_[shared[0]->name()];
    if (sums == nullptr) {
      sums = std::make_shared<SecondMoments>(x.cols);
      for (const Linear* linear : shared) held_[linear->name()] = sums;
    }
    sums->add(x, context->threads());
  };
  const std::span<const int32_t> tokens = tokens_;
  const size_t window = static_cast<size_t>(window_), windows = tokens.size() / window;
  for (size_t w = 0; w < windows; ++w) {
    if (interrupted()) return fail("interrupted");
    progress.show(fmt::format("calibrating: window {} of {}, {} MiB of moments", w + 1, windows, bytes >> 20));
    cache->truncate(0);
    const MatrixView<float> none = dense_view<float>(nullptr, 0, model->config().vocabulary);
    const Status done = model->forward(*context, tokens.subspan(w * window, window), *cache, none, observe);
    if (!done) return done;
  }
  return {};
}

}  // namespace octalane::cli
