// ppl against perplexities computed here from the logits that it writes.
#include <cmath>

#include "cli/tool.h"
#include "files/npy.h"

namespace octalane::cli_test {
namespace {

/// 200 bytes of text; a tiny model's token is its byte.
std::string text() {
  std::string out;
  for (int i = 0; i < 200; ++i) out += static_cast<char>('a' + (i * i + i / 7) % 26);
  return out;
}

std::string text_file() {
  const std::string path = scratch() / "ppl.txt";
  write_file(path, text());
  return path;
}

/// Losses of the second halves of windows of `context`, in fp64 from logits of the scored positions.
std::vector<double> losses(const Matrix& logits, size_t context) {
  std::vector<double> out;
  const std::string tokens = text();
  size_t row = 0;
  for (size_t start = 0; start + context <= tokens.size(); start += context) {
    for (size_t position = context / 2; position + 1 < context; ++position, ++row) {
      double sum = 0;
      const float* values = logits.view().row(static_cast<int64_t>(row));
      for (int64_t i = 0; i < logits.cols; ++i) sum += std::exp(double{values[i]});
      out.push_back(std::log(sum) - double{values[static_cast<unsigned char>(tokens[start + position + 1])]});
    }
  }
  EXPECT_EQ(static_cast<int64_t>(row), logits.rows);
  return out;
}

TEST(Ppl, is_the_exponential_of_the_mean_loss_over_second_halves) {
  const std::string npy = scratch() / "logits.npy";
  const Json result = octalane_json({"ppl", "-m", tiny_model(), "-f", text_file(), "--context", "64", "--logits", npy});
  EXPECT_EQ(result["windows"], 3);
  EXPECT_EQ(result["tokens"], 3 * 31);
  const Expected<Matrix> logits = read_npy(npy);
  ASSERT_TRUE(logits);
  const std::vector<double> all = losses(*logits, 64);
  double sum = 0, squares = 0;
  for (const double loss : all) sum += loss;
  const auto count = static_cast<double>(all.size());
  for (const double loss : all) squares += std::pow(loss - sum / count, 2);
  const double ppl = std::exp(sum / count);
  EXPECT_NEAR(result["ppl"].get<double>(), ppl, 1e-9 * ppl);
  EXPECT_NEAR(result["stderr"].get<double>(), ppl * std::sqrt(squares / count / (count - 1)), 1e-9 * ppl);
}

TEST(Ppl, a_lane_against_itself_differs_nowhere) {
  const Json result = octalane_json(
      {"ppl", "-m", tiny_model(), "-f", text_file(), "--context", "32", "--vs", "bf16", "--tokens", "64"});
  EXPECT_EQ(result["windows"], 2);
  EXPECT_EQ(result["ppl_ratio"], 1.0);
  EXPECT_EQ(result["top1"], 1.0);
  for (const char* key : {"mean", "p99", "max"}) EXPECT_EQ(result["kld"][key], 0.0) << key;
}

TEST(Ppl, a_lossy_lane_is_compared_position_by_position) {
  const std::string mine = scratch() / "bf16.npy", other = scratch() / "s8.npy";
  const Arguments base{"ppl", "-m", tiny_model(), "-f", text_file(), "--context", "64"};
  const auto with = [&](const Arguments& more) {
    Arguments all = base;
    all.insert(all.end(), more.begin(), more.end());
    return octalane_json(all);
  };
  const Json paired = with({"--vs", "s8.group"});
  const Json alone = with({"--logits", mine}), lossy = with({"--lane", "s8.group", "--logits", other});
  EXPECT_EQ(paired["ppl"], alone["ppl"]);
  EXPECT_EQ(paired["vs"]["ppl"], lossy["ppl"]);
  EXPECT_NEAR(paired["ppl_ratio"].get<double>(), lossy["ppl"].get<double>() / alone["ppl"].get<double>(), 1e-12);

  const Expected<Matrix> p = read_npy(mine), q = read_npy(other);
  ASSERT_TRUE(p && q);
  double sum = 0, most = 0;
  int64_t same = 0;
  for (int64_t row = 0; row < p->rows; ++row) {
    const float *a = p->view().row(row), *b = q->view().row(row);
    double sum_a = 0, sum_b = 0, kld = 0;
    for (int64_t i = 0; i < p->cols; ++i) {
      sum_a += std::exp(double{a[i]});
      sum_b += std::exp(double{b[i]});
    }
    for (int64_t i = 0; i < p->cols; ++i) {
      kld += std::exp(double{a[i]}) / sum_a * (double{a[i]} - std::log(sum_a) - double{b[i]} + std::log(sum_b));
    }
    sum += kld;
    most = std::max(most, kld);
    same += std::max_element(a, a + p->cols) - a == std::max_element(b, b + p->cols) - b ? 1 : 0;
  }
  const auto rows = static_cast<double>(p->rows);
  EXPECT_NEAR(paired["kld"]["mean"].get<double>(), sum / rows, 1e-12);
  EXPECT_NEAR(paired["kld"]["max"].get<double>(), most, 1e-12);
  EXPECT_EQ(paired["top1"].get<double>(), static_cast<double>(same) / rows);
  EXPECT_GT(sum, 0);
}

TEST(Ppl, texts_shorter_than_a_window_are_refused) {
  expect_error(octalane({"ppl", "-m", tiny_model(), "-f", text_file()}), 1,
               "wanted at least 512 tokens, one window (--context), got 200");
  expect_error(octalane({"ppl", "-m", tiny_model(), "-f", "/no/such/text"}), 1, "/no/such/text");
}

}  // namespace
}  // namespace octalane::cli_test
