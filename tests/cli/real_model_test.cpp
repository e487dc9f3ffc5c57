// The commands on SmolLM2-135M-Instruct, where scripts/fetch_model.sh has brought it.
#include <algorithm>
#include <set>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

#define NEEDS_MODEL(model)                \
  const std::string model = real_model(); \
  if (model.empty()) GTEST_SKIP() << "the model is not here; scripts/fetch_model.sh brings it"

TEST(RealModel, run_stays_within_file_cache_and_64_mib) {
  NEEDS_MODEL(model);
  if (sanitized()) GTEST_SKIP() << "the sanitizer's own memory would be measured";
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "word " + std::to_string(i) + " ";
  const std::string file = scratch() / "long.txt";
  write_file(file, prompt);
  for (const std::string lane : {"auto", "s8.group"}) {
    const Json result = octalane_json({"run", "-m", model, "-f", file, "-n", "2", "--lane", lane});
    EXPECT_GT(result["prefill"]["tokens"], 1000);
    const int64_t allowed =
        result["file_bytes"].get<int64_t>() + result["kv_cache_bytes"].get<int64_t>() + (int64_t{64} << 20);
    EXPECT_LE(result["peak_memory_bytes"].get<int64_t>(), allowed) << lane;
    EXPECT_GT(result["peak_memory_bytes"].get<int64_t>(), result["file_bytes"].get<int64_t>() / 2) << "not measured";
  }
}

TEST(RealModel, logits_do_not_depend_on_threads_or_batches) {
  NEEDS_MODEL(model);
  const Arguments base{"run", "-m", model, "-p", "The three primary colours are", "-n", "3"};
  std::set<std::string> hashes;
  for (const Arguments& change : {Arguments{"--threads", "1"}, {"--threads", "2"}, {"--batch", "1"}}) {
    Arguments all = base;
    all.insert(all.end(), change.begin(), change.end());
    hashes.insert(octalane_json(all)["logits_hash"]);
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(RealModel, synth_has_its_tensors_and_shapes) {
  NEEDS_MODEL(model);
  const std::string path = scratch() / "like.gguf";
  octalane_json({"synth", "--like", "smollm2-135m", "--format", "q4_0", path});
  const auto shapes = [](const std::string& file) {
    std::set<std::pair<std::string, std::vector<int64_t>>> all;
    const Json result = octalane_json({"inspect", file});
    for (const Json& tensor : result["tensors"]) {
      all.emplace(tensor["name"].get<std::string>(), tensor["shape"].get<std::vector<int64_t>>());
    }
    return all;
  };
  EXPECT_EQ(shapes(path), shapes(model));
  const Json mine = octalane_json({"inspect", path})["metadata"], real = octalane_json({"inspect", model})["metadata"];
  for (const auto& [key, value] : real.items()) {
    if (key.rfind("llama.", 0) != 0) continue;
    EXPECT_EQ(mine[key], value) << key;
  }
}

TEST(RealModel, quantize_falls_back_where_576_columns_do_not_fit) {
  NEEDS_MODEL(model);
  const std::string out = scratch() / "q6.gguf";
  const Json result = octalane_json({"quantize", model, out, "--format", "q6_k", "--tensor", "blk.0.*"});
  std::set<std::string> kinds;
  for (const Json& row : result["tensors"]) {
    if (row["name"].get<std::string>().rfind("blk.0.ffn", 0) == 0 && row["from"] != "f32") kinds.insert(row["to"]);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"q6_k", "q8_0"}));
}

}  // namespace
}  // namespace octalane::cli_test
