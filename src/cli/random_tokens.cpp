#include "cli/random_tokens.h"

#include <cmath>

#include "cli/random_blocks.h"

namespace octalane::cli {

const std::vector<std::string>& token_kinds() {
  static const std::vector<std::string> kinds{"gaussian", "heavy", "outlier"};
  return kinds;
}

int64_t outlier_channel(int64_t cols) { return cols / 3; }

std::vector<float> random_tokens(const std::string& kind, int64_t tokens, int64_t cols, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(tokens * cols));
  Gaussian random(seed);
  if (kind == "heavy") {
    for (float& value : x) {
      const double normal = random.next(), a = random.next(), b = random.next(), c = random.next();
      value = static_cast<float>(normal / std::sqrt((a * a + b * b + c * c) / 3));
    }
    return x;
  }
  random.fill(x, 1);
  for (int64_t m = 0; kind == "outlier" && m < tokens; ++m) {
    x[static_cast<size_t>(m * cols + outlier_channel(cols))] *= 1000;
  }
  return x;
}

std::string describe_input(const std::string& kind) {
  const std::string weights = "Gaussian weights of standard deviation 1/sqrt(cols), quantized; ";
  if (kind == "heavy") return weights + "activations of Student's t with 3 degrees of freedom";
  if (kind == "outlier") return weights + "Gaussian activations, one channel times 1000";
  return weights + "Gaussian activations";
}

}  // namespace octalane::cli
