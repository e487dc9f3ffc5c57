#include <cstdio>
#include <octalane/octalane.hpp>
#include <span>
#include <string>
#include <vector>

#include "problem.h"

namespace {

octalane::Result<std::string> multiply(const Problem& problem, std::vector<float>& y) {
  const auto context = octalane::Context::create();
  if (!context) return tl::make_unexpected(context.error());
  const auto blocks = std::as_bytes(std::span(problem.q8_0));
  const auto weights = octalane::Weights::bind(*context, "q8_0", blocks, ROWS, COLS);
  if (!weights) return tl::make_unexpected(weights.error());
  const auto done = weights->multiply(*context, problem.x, TOKENS, COLS, y.data(), ROWS);
  if (!done) return tl::make_unexpected(done.error());
  return weights->kernel(*context, TOKENS);
}

}  // namespace

int main() {
  static Problem problem;
  make_problem(&problem);
  std::vector<float> y(TOKENS * ROWS);
  const auto kernel = multiply(problem, y);
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().message.c_str());
    return 1;
  }
  if (const int i = first_difference(&problem, y.data()); i >= 0) {
    std::fprintf(stderr, "%s: y[%d, %d]: wanted %.9g, got %.9g\n", kernel->c_str(), i / ROWS, i % ROWS,
                 double{problem.wanted[i]}, double{y[static_cast<size_t>(i)]});
    return 1;
  }
  const auto nowhere = octalane::File::open("/nowhere/model.gguf");
  if (nowhere || nowhere.error().message.find("/nowhere/model.gguf") == std::string::npos) return 1;

  std::printf("%s: %d x %d x %d from C++, as the plain loop\n", kernel->c_str(), TOKENS, ROWS, COLS);
}
