// dump_logits MODEL TOKENS.npy OUT.npy [LANE]: runs every row of TOKENS [windows, positions] from an empty cache and
// writes the logits of all positions, [windows * positions, vocabulary]. What compare_llama.py compares.
#include <fmt/core.h>

#include <utility>

#include "files/npy.h"
#include "model/model.h"

namespace octalane {
namespace {

Status dump(const std::string& model_path, const std::string& tokens_path, const std::string& out_path,
            const std::string& lane) {
  ContextOptions options;
  if (!lane.empty()) {
    options.lane = staged_type_from_name(lane);
    if (!options.lane) return fail("lane: no staged type is called {}", lane);
  }
  Expected<Context> context = Context::create(options);
  if (!context) return fail_with(context);
  const Expected<Checkpoint> file = Checkpoint::open(model_path);
  if (!file) return fail_with(file);
  const Expected<Model> model = Model::load(*context, *file);
  if (!model) return fail_with(model);
  const Expected<Matrix> tokens = read_npy(tokens_path);
  if (!tokens) return fail_with(tokens);
  Expected<KvCache> cache = KvCache::create(model->config(), tokens->cols);
  if (!cache) return fail_with(cache);

  const int64_t positions = tokens->cols, vocabulary = model->config().vocabulary;
  Matrix logits{std::vector<float>(static_cast<size_t>(tokens->rows * positions * vocabulary)),
                tokens->rows * positions, vocabulary};
  for (int64_t window = 0; window < tokens->rows; ++window) {
    const float* row = tokens->values.data() + window * positions;
    const std::vector<int32_t> ids(row, row + positions);
    cache->truncate(0);
    const MatrixView<float> part = dense_view(logits.view().row(window * positions), positions, vocabulary);
    if (const Status done = model->forward(*context, ids, *cache, part); !done) return done;
  }
  for (const auto& [kernel, use] : context->uses()) {
    fmt::print("{}: {} calls, {:.3g} operations\n", kernel, use.calls, use.ops);
  }
  return write_npy(out_path, std::as_const(logits).view());
}

}  // namespace
}  // namespace octalane

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    fmt::print(stderr, "usage: dump_logits MODEL TOKENS.npy OUT.npy [LANE]\n");
    return 2;
  }
  const octalane::Status done = octalane::dump(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : "");
  if (!done) fmt::print(stderr, "dump_logits: error: {}\n", done.error().message);
  return done ? 0 : 1;
}
