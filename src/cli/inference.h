// What run, ppl and bench model share: loading, prefill in batches, what the kernels did.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "cli/command.h"
#include "model/model.h"

namespace octalane::cli {

/// A model bound to the machine that the flags ask for. The file must outlive it.
struct LoadedModel {
  Context context;
  Model model;
  std::string receipt;  ///< that is obeyed; "" = none
};
Expected<LoadedModel> load_model(const CommonOptions& options, const Checkpoint& file);

/// All of a text file; "-" is standard input.
Expected<std::string> read_text(const std::string& path);

struct Phase {
  int64_t tokens = 0;
  double seconds = 0;
};
/// {tokens, seconds, tokens_per_second}; the rate is null when nothing was done.
Json phase_json(const Phase& phase);
std::string phase_text(const Phase& phase);

/// Runs tokens through the model in calls of `batch`; `logits` is one row, the last token's. Stops between calls when
/// Ctrl-C was pressed: the result counts the tokens that went in.
Expected<Phase> prefill(LoadedModel& loaded, KvCache& cache, std::span<const int32_t> tokens, int64_t batch,
                        std::span<float> logits);

/// One token in, its logits out.
Status decode(LoadedModel& loaded, KvCache& cache, int32_t token, std::span<float> logits);

/// null for "".
Json text_or_null(const std::string& text);

/// Kernels engaged: {staged: ops}, and [{kernel, staged, calls, ops, share}].
Json lanes_json(const Context& context);
Json kernels_json(const Context& context);

}  // namespace octalane::cli
