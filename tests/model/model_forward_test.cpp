// Logits against llama.cpp and fp64 numpy, and the same bits however a prompt is run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "files/npy.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "tiny_model.h"

namespace octalane {
namespace {

Context make_context(int threads, std::optional<StagedType> lane = {}, std::string isa = "") {
  Expected<Context> context = Context::create({threads, std::move(isa), lane});
  EXPECT_TRUE(context) << context.error().message;
  return std::move(*context);
}

Model load(Context& context, const Expected<GgufFile>& file) {
  EXPECT_TRUE(file) << file.error().message;
  Expected<Model> model = Model::load(context, *file);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(*model);
}

/// Logits of every token, fed in pieces of `piece`.
std::vector<float> run(Context& context, const Model& model, std::span<const int32_t> tokens, size_t piece) {
  Expected<KvCache> cache = KvCache::create(model.config(), static_cast<int64_t>(tokens.size()));
  EXPECT_TRUE(cache);
  const int64_t vocabulary = model.config().vocabulary;
  std::vector<float> logits(tokens.size() * static_cast<size_t>(vocabulary));
  for (size_t begin = 0; begin < tokens.size(); begin += piece) {
    const size_t count = std::min(piece, tokens.size() - begin);
    const MatrixView<float> rows =
        dense_view(logits.data() + static_cast<int64_t>(begin) * vocabulary, static_cast<int64_t>(count), vocabulary);
    const Status done = model.forward(context, tokens.subspan(begin, count), *cache, rows);
    EXPECT_TRUE(done) << done.error().message;
  }
  EXPECT_EQ(cache->size(), static_cast<int64_t>(tokens.size()));
  return logits;
}

Matrix golden(const std::string& name) {
  Expected<Matrix> matrix = read_npy(std::string(OCTALANE_TEST_DATA) + "/model/golden/" + name + ".npy");
  EXPECT_TRUE(matrix) << matrix.error().message;
  return matrix ? std::move(*matrix) : Matrix{};
}

struct Distance {
  double whole = 0;     // relative L2 over all recorded rows
  double best_row = 1;  // and of the best one but position 0, which has nothing to attend to
  int64_t same_top1 = 0;
};

Distance compare(const std::vector<float>& logits, const Matrix& wanted) {
  const std::vector<int64_t> positions = tiny::recorded_positions();
  EXPECT_EQ(wanted.rows, static_cast<int64_t>(positions.size()));
  EXPECT_EQ(wanted.cols, tiny::kVocabulary);
  Distance distance;
  double difference = 0, size = 0;
  for (int64_t r = 0; r < wanted.rows; ++r) {
    const float* got = logits.data() + positions[static_cast<size_t>(r)] * tiny::kVocabulary;
    const float* row = wanted.values.data() + r * wanted.cols;
    double row_difference = 0, row_size = 0;
    for (int64_t i = 0; i < wanted.cols; ++i) {
      row_difference += std::pow(double{got[i]} - double{row[i]}, 2);
      row_size += std::pow(double{row[i]}, 2);
    }
    difference += row_difference;
    size += row_size;
    if (r > 0) distance.best_row = std::min(distance.best_row, std::sqrt(row_difference / row_size));
    distance.same_top1 +=
        std::max_element(got, got + wanted.cols) - got == std::max_element(row, row + wanted.cols) - row;
  }
  distance.whole = std::sqrt(difference / size);
  return distance;
}

/// On the way to the logits an input is rounded to bfloat16 four times a layer and once before the head, by at most
/// half a unit in its eighth bit each.
constexpr double kStagingBound = (4 * tiny::kLayers + 1) * 0x1p-9;

class Variants : public testing::TestWithParam<tiny::Variant> {};

TEST_P(Variants, AgreeWithTheExactOracleWithinBf16Staging) {
  const tiny::Variant& variant = GetParam();
  Context context = make_context(2);
  const Model model = load(context, tiny::recipe(variant).open());
  const std::vector<float> logits = run(context, model, tiny::tokens(), 40);
  const Matrix wanted = golden(variant.name + (variant.llama_cpp ? ".llama_cpp" : ".fp64"));
  const Distance distance = compare(logits, wanted);
  RecordProperty("relative_error", fmt::format("{:.3g}", distance.whole));
  EXPECT_LE(distance.whole, kStagingBound);
  EXPECT_EQ(distance.same_top1, wanted.rows);
}

/// The oracle rounds as octalane does, so rows agree to fp32, until an input lies so near the middle between two
/// bfloat16 values that the last bit of a sum decides: from that position on the two differ as staged results do.
void expect_staged(const Distance& distance) {
  EXPECT_LE(distance.best_row, 1e-6);
  EXPECT_LE(distance.whole, kStagingBound / 2);
}

TEST_P(Variants, AgreeWithTheStagedOracleToFp32) {
  const tiny::Variant& variant = GetParam();
  for (const IsaTable* isa : isa_tables()) {
    if (!isa->unavailable().empty()) continue;
    Context context = make_context(2, {}, isa->name);
    const Model model = load(context, tiny::recipe(variant).open());
    SCOPED_TRACE(isa->name);
    const Distance distance = compare(run(context, model, tiny::tokens(), 40), golden(variant.name + ".staged"));
    RecordProperty(fmt::format("relative_error_{}", isa->name), fmt::format("{:.3g}", distance.whole));
    expect_staged(distance);
  }
}

TEST_P(Variants, AreTheSameToTheBitForAnyThreadsAndAnySplitOfThePrompt) {
  const tiny::Variant& variant = GetParam();
  const Expected<GgufFile> file = tiny::recipe(variant).open();
  const std::vector<int32_t> tokens = tiny::tokens();
  for (const StagedType lane : {StagedType::bf16, StagedType::s8_group}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      Context context = make_context(threads, lane);
      const Model model = load(context, file);
      for (const size_t piece : {40, 1, 7, 33}) {
        const std::vector<float> logits = run(context, model, tokens, piece);
        if (first.empty()) first = logits;
        ASSERT_EQ(std::memcmp(first.data(), logits.data(), logits.size() * sizeof(float)), 0)
            << name(lane) << ", " << threads << " threads, pieces of " << piece;
      }
      for (const auto& [kernel, use] : context.uses()) EXPECT_EQ(use.staged, lane) << kernel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Variants, testing::ValuesIn(tiny::variants()),
                         [](const auto& test) { return test.param.name; });

/// The gate can fail: each pair shares all weights, and one key or tensor tells them apart.
TEST(ModelGate, EveryVariantIsFarFromItsNeighboursRecording) {
  const std::pair<const char*, const char*> pairs[] = {
      {"llama_tied", "llama_rope_freqs"},
      {"llama_tied", "llama_linear"},
      {"llama_tied", "llama_partial_rotary"},
      {"llama_tied", "llama_attention_scale"},
      {"llama_tied", "llama_biases"},
      {"llama_tied", "llama_untied"},
      {"qwen2", "qwen2_yarn"},
      {"qwen2", "qwen2_partial_rotary"},
  };
  Context context = make_context(1);
  for (const auto& [run_name, golden_name] : pairs) {
    const Model model = load(context, tiny::recipe(tiny::variant(run_name)).open());
    const std::vector<float> logits = run(context, model, tiny::tokens(), 40);
    EXPECT_GT(compare(logits, golden(std::string(golden_name) + ".staged")).whole, 3 * kStagingBound)
        << run_name << " against " << golden_name;
  }
}

TEST(Model, ReadsAFileThatAnotherWriterMade) {
  Context context = make_context(2);
  const Model model = load(context, GgufFile::open(std::string(OCTALANE_TEST_DATA) + "/model/golden/llama_tied.gguf"));
  const Model same = load(context, tiny::recipe(tiny::variant("llama_tied")).open());
  const std::vector<int32_t> tokens = tiny::tokens();
  EXPECT_EQ(run(context, model, tokens, 40), run(context, same, tokens, 40));
}

TEST(Model, LogitsAreThoseOfTheLastRowsAndNoneAreFine) {
  Context context = make_context(2);
  const Model model = load(context, tiny::recipe(tiny::variant("qwen2")).open());
  const std::vector<int32_t> tokens = tiny::tokens();
  const std::vector<float> all = run(context, model, tokens, 40);
  for (const int64_t rows : {0, 1, 3, 40}) {
    Expected<KvCache> cache = KvCache::create(model.config(), 41);
    ASSERT_TRUE(cache);
    std::vector<float> last(static_cast<size_t>((rows + 1) * tiny::kVocabulary));
    ASSERT_TRUE(model.forward(context, tokens, *cache, dense_view(last.data(), rows, tiny::kVocabulary)));
    const float* wanted = all.data() + (tiny::kTokens - rows) * tiny::kVocabulary;
    EXPECT_EQ(std::memcmp(last.data(), wanted, static_cast<size_t>(rows * tiny::kVocabulary) * sizeof(float)), 0);
    // The cache holds what a full run left there: the next token comes out the same.
    std::vector<float> next(tiny::kVocabulary);
    ASSERT_TRUE(
        model.forward(context, std::span(tokens).first(1), *cache, dense_view(next.data(), 1, tiny::kVocabulary)));
    static std::vector<float> first_next;
    if (first_next.empty()) first_next = next;
    EXPECT_EQ(next, first_next);
  }
}

TEST(Model, APromptLongerThanOnePieceIsTheSameInAnyPartsOnAnyThreads) {
  const Expected<GgufFile> file = tiny::recipe(tiny::variant("llama_tied")).open();
  const std::vector<int32_t> tokens = tiny::tokens(1100);
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    Context context = make_context(threads);
    const Model model = load(context, file);
    for (const size_t piece : {1100, 512, 397}) {
      const std::vector<float> logits = run(context, model, tokens, piece);
      if (first.empty()) first = logits;
      EXPECT_EQ(std::memcmp(first.data(), logits.data(), first.size() * sizeof(float)), 0)
          << threads << " threads, pieces of " << piece;
    }
  }
}

TEST(Model, ATruncatedCacheGoesOnAsIfTheRestHadNeverBeen) {
  Context context = make_context(2);
  const Model model = load(context, tiny::recipe(tiny::variant("qwen3")).open());
  const std::vector<int32_t> tokens = tiny::tokens();
  const std::vector<float> all = run(context, model, tokens, 40);
  Expected<KvCache> cache = KvCache::create(model.config(), 40);
  ASSERT_TRUE(cache);
  const std::vector<int32_t> other(20, 7);
  std::vector<float> logits(static_cast<size_t>(30 * tiny::kVocabulary));
  ASSERT_TRUE(model.forward(context, std::span(tokens).first(10), *cache, dense_view(logits.data(), 0, 0)));
  ASSERT_TRUE(model.forward(context, other, *cache, dense_view(logits.data(), 0, 0)));
  cache->truncate(10);
  ASSERT_TRUE(
      model.forward(context, std::span(tokens).subspan(10), *cache, dense_view(logits.data(), 30, tiny::kVocabulary)));
  EXPECT_EQ(std::memcmp(logits.data(), all.data() + 10 * tiny::kVocabulary, logits.size() * sizeof(float)), 0);
}

TEST(Model, AnObserverSeesWhatEachProductMultipliesAndChangesNothing) {
  Context context = make_context(2);
  const Model model = load(context, tiny::recipe(tiny::variant("llama_untied")).open());
  const std::vector<int32_t> tokens = tiny::tokens();
  const std::vector<float> plain = run(context, model, tokens, 40);
  Expected<KvCache> cache = KvCache::create(model.config(), 40);
  ASSERT_TRUE(cache);
  std::vector<const Linear*> seen;
  std::vector<float> logits(plain.size()), input;
  const auto head = dense_view(logits.data(), 40, tiny::kVocabulary);
  ASSERT_TRUE(model.forward(context, tokens, *cache, head, [&](auto products, MatrixView<const float> x) {
    seen.insert(seen.end(), products.begin(), products.end());
    EXPECT_EQ(x.rows, tiny::kTokens);  // in the last layer too
    EXPECT_EQ(x.cols, products[0]->cols());
    // The products again, of what was shown.
    input.assign(x.data, x.data + x.rows * x.cols);
    if (products[0]->name() != "output.weight") return;
    std::vector<float> again(plain.size());
    ASSERT_TRUE(products[0]->multiply(context, dense_view<const float>(input.data(), x.rows, x.cols),
                                      dense_view(again.data(), x.rows, tiny::kVocabulary)));
    EXPECT_EQ(again, plain);
  }));
  EXPECT_EQ(logits, plain);
  EXPECT_EQ(seen, std::vector<const Linear*>(model.linears().begin(), model.linears().end()));
  seen.clear();
  cache->truncate(0);
  ASSERT_TRUE(model.forward(context, tokens, *cache, dense_view(logits.data(), 0, tiny::kVocabulary),
                            [&](auto products, MatrixView<const float> x) {
                              seen.insert(seen.end(), products.begin(), products.end());
                              EXPECT_EQ(x.rows, tiny::kTokens);
                            }));
  EXPECT_EQ(seen.size(), model.linears().size() - 1) << "all but the head";
}

TEST(Model, ListsEveryBoundProductByItsTensor) {
  Context context = make_context(1);
  const Model tied = load(context, tiny::recipe(tiny::variant("llama_tied")).open());
  ASSERT_EQ(tied.linears().size(), 7u * tiny::kLayers + 1u);
  EXPECT_EQ(tied.linears().front()->name(), "blk.0.attn_q.weight");
  EXPECT_EQ(tied.linears().back()->name(), "token_embd.weight");
  const Model untied = load(context, tiny::recipe(tiny::variant("llama_untied")).open());
  EXPECT_EQ(untied.linears().back()->name(), "output.weight");
}

}  // namespace
}  // namespace octalane
