#include "cli/scoring.h"

#include <algorithm>

#include "cli/inference.h"
#include "core/fnv1a.h"

namespace octalane::cli {
namespace {

/// True when the tokenizer begins every text with the begin token.
bool adds_begin(const Tokenizer& tokenizer) {
  const std::vector<int32_t> empty = tokenizer.encode("");
  return tokenizer.bos() >= 0 && !empty.empty() && empty.front() == tokenizer.bos();
}

}  // namespace

Expected<ScoredText> read_scored_text(const std::string& path, const TextOptions& options, const Tokenizer& tokenizer,
                                      int64_t model_context) {
  if (options.context > model_context) {
    return fail("--context: wanted at most {}, what the model was trained for, got {}", model_context, options.context);
  }
  const Expected<std::string> text = read_text(path);
  if (!text) return fail_with(text);
  Fnv1a hash;
  hash.add(*text);
  ScoredText out{hash.hex(), tokenizer.encode(*text)};
  const auto got = static_cast<int64_t>(out.tokens.size());
  const int64_t used = options.tokens > 0 ? std::min(got, options.tokens) : got;
  if (used < options.context) {
    return fail("{}: wanted at least {} tokens, one window (--context), got {}", path, options.context, used);
  }
  out.tokens.resize(static_cast<size_t>(used / options.context * options.context));
  if (!adds_begin(tokenizer)) return out;
  for (size_t at = 0; at < out.tokens.size(); at += static_cast<size_t>(options.context)) {
    out.tokens[at] = tokenizer.bos();
  }
  return out;
}

}  // namespace octalane::cli
