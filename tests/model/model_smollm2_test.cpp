// SmolLM2-135M-Instruct against llama.cpp's recorded distributions, and its own bits under threads and splits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/half.h"
#include "files/npy.h"
#include "model/model.h"
#include "model/tokenizer.h"

namespace octalane {
namespace {

const std::string kGolden = std::string(OCTALANE_TEST_DATA) + "/model/golden/smollm2.";
const std::string kText = std::string(OCTALANE_TEST_DATA) + "/../../shared/corpus/wikitext2-test.txt";

std::string model_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return folder + "/octalane/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// The elements of a two-byte .npy file (version 1: 10 bytes, then a header whose length the last two say).
std::vector<uint16_t> read_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  uint16_t header = 0;
  EXPECT_GT(bytes.size(), 10u) << path;
  if (bytes.size() <= 10) return {};
  std::memcpy(&header, bytes.data() + 8, sizeof header);
  std::vector<uint16_t> words((bytes.size() - 10 - header) / 2);
  std::memcpy(words.data(), bytes.data() + 10 + header, words.size() * 2);
  return words;
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "takes minutes under the sanitizers; the release build runs it";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    GTEST_SKIP() << "takes minutes under the sanitizers; the release build runs it";
#endif
#endif
    if (!std::filesystem::exists(model_path())) GTEST_SKIP() << "no model at " << model_path();
    if (!std::filesystem::exists(kText)) GTEST_SKIP() << "no text at ../shared/corpus/wikitext2-test.txt";
    int64_t bytes = 0;
    std::ifstream(kGolden + "layout.txt") >> bytes >> windows_ >> positions_ >> std::hex >> hash_;
    ASSERT_GT(bytes, 0);
    Expected<GgufFile> file = GgufFile::open(model_path());
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(std::move(*file));
    read_tokens(bytes);
  }

  void read_tokens(int64_t bytes) {
    const Expected<Tokenizer> tokenizer = Tokenizer::load(*file_);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    std::string text(static_cast<size_t>(bytes), '\0');
    std::ifstream(kText, std::ios::binary).read(text.data(), bytes);
    tokens_ = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    ASSERT_GT(static_cast<int64_t>(tokens_.size()), windows_ * positions_);
    tokens_.resize(static_cast<size_t>(windows_ * positions_ + 1));
    uint64_t hash = 0xCBF29CE484222325u;
    for (const int32_t token : tokens_) {
      for (int shift = 0; shift < 32; shift += 8) {
        hash = (hash ^ ((static_cast<uint32_t>(token) >> shift) & 0xFFu)) * 0x100000001B3u;
      }
    }
    ASSERT_EQ(hash, hash_) << "the tokens are not those of the recording";
  }

  Context make_context(int threads, std::optional<StagedType> lane = {}) {
    Expected<Context> context = Context::create({.threads = threads, .isa = "", .lane = lane});
    EXPECT_TRUE(context) << context.error().message;
    return std::move(*context);
  }

  Model load(Context& context) {
    Expected<Model> model = Model::load(context, *file_);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(*model);
  }

  std::vector<float> run(Context& context, const Model& model, std::span<const int32_t> tokens, size_t piece) {
    Expected<KvCache> cache = KvCache::create(model.config(), static_cast<int64_t>(tokens.size()));
    EXPECT_TRUE(cache) << cache.error().message;
    const int64_t vocabulary = model.config().vocabulary;
    std::vector<float> logits(tokens.size() * static_cast<size_t>(vocabulary));
    for (size_t begin = 0; begin < tokens.size(); begin += piece) {
      const size_t count = std::min(piece, tokens.size() - begin);
      const Status done = model.forward(context, tokens.subspan(begin, count), *cache,
                                        dense_view(logits.data() + static_cast<int64_t>(begin) * vocabulary,
                                                   static_cast<int64_t>(count), vocabulary));
      EXPECT_TRUE(done) << done.error().message;
    }
    return logits;
  }

  std::optional<GgufFile> file_;
  std::vector<int32_t> tokens_;
  int64_t windows_ = 0, positions_ = 0;
  uint64_t hash_ = 0;
};

struct Scores {
  double kld = 0, wanted_nll = 0, got_nll = 0;
  int64_t same_top1 = 0, positions = 0;
};

/// One position: `ids` and their recorded log-probabilities, the probability of the rest, the target's log-probability.
/// The divergence of the distributions over {each of ids, all others}: at most that over the whole vocabulary.
void score(Scores& scores, const float* logits, int64_t vocabulary, std::span<const uint16_t> ids,
           std::span<const uint16_t> logs, float rest, float target_log, int32_t target) {
  const float top = *std::max_element(logits, logits + vocabulary);
  double sum = 0;
  for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - double{top});
  const double shift = double{top} + std::log(sum);
  double kld = 0, got_sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double wanted = f16_to_f32(logs[i]), got = double{logits[ids[i]]} - shift;
    kld += std::exp(wanted) * (wanted - got);
    got_sum += std::exp(got);
  }
  if (rest > 0 && got_sum < 1) kld += double{rest} * std::log(double{rest} / (1 - got_sum));
  scores.kld += kld;
  scores.wanted_nll -= double{target_log};
  scores.got_nll -= double{logits[target]} - shift;
  scores.same_top1 += logits[ids[0]] == top;
  scores.positions += 1;
}

TEST_F(SmolLm2, NextTokenDistributionsAreThoseOfLlamaCpp) {
  const std::vector<uint16_t> ids = read_words(kGolden + "ids.npy"), logs = read_words(kGolden + "logs.npy");
  const Expected<Matrix> rest = read_npy(kGolden + "rest.npy");
  ASSERT_TRUE(rest) << rest.error().message;
  ASSERT_EQ(rest->rows, windows_ * positions_);
  const size_t kept = ids.size() / static_cast<size_t>(rest->rows);
  ASSERT_EQ(ids.size(), logs.size());

  Context context = make_context(0);
  const Model model = load(context);
  const int64_t vocabulary = model.config().vocabulary;
  Scores scores;
  for (int64_t window = 0; window < windows_; ++window) {
    const std::span<const int32_t> part =
        std::span(tokens_).subspan(static_cast<size_t>(window * positions_), static_cast<size_t>(positions_));
    const std::vector<float> logits = run(context, model, part, part.size());
    for (int64_t p = 0; p < positions_; ++p) {
      const int64_t at = window * positions_ + p;
      score(scores, logits.data() + p * vocabulary, vocabulary,
            std::span(ids).subspan(static_cast<size_t>(at) * kept, kept),
            std::span(logs).subspan(static_cast<size_t>(at) * kept, kept), rest->view()(at, 0), rest->view()(at, 1),
            tokens_[static_cast<size_t>(at) + 1]);
    }
  }
  const auto positions = static_cast<double>(scores.positions);
  const double perplexity = std::exp(scores.got_nll / positions), wanted = std::exp(scores.wanted_nll / positions);
  const double top1 = static_cast<double>(scores.same_top1) / positions;
  fmt::print("mean KLD (top {} and the rest) {:.3e}, top-1 {:.2f} %, perplexity {:.4f} against {:.4f}\n", kept,
             scores.kld / positions, 100 * top1, perplexity, wanted);
  EXPECT_EQ(scores.positions, 2000);
  EXPECT_LE(scores.kld / positions, 1e-3);
  EXPECT_GE(top1, 0.98);
  EXPECT_NEAR(perplexity / wanted, 1.0, 0.005);
}

TEST_F(SmolLm2, LogitsAreTheSameToTheBitForAnyThreadsAndAnySplit) {
  const std::span<const int32_t> prompt = std::span(tokens_).first(64);
  for (const StagedType lane : {StagedType::bf16, StagedType::s8_group}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      Context context = make_context(threads, lane);
      const Model model = load(context);
      for (const size_t piece : {64, 1, 13}) {
        const std::vector<float> logits = run(context, model, prompt, piece);
        if (first.empty()) first = logits;
        ASSERT_EQ(std::memcmp(first.data(), logits.data(), logits.size() * sizeof(float)), 0)
            << name(lane) << ", " << threads << " threads, pieces of " << piece;
      }
    }
  }
}

}  // namespace
}  // namespace octalane
