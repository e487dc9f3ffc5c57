#include "additive/fixtures.h"

#include <cmath>

#include "cli/random_blocks.h"

namespace octalane::bench {
namespace {

PackedWeights random_weights(int64_t rows, int64_t cols, uint64_t seed) {
  const Format& format = *find_format(kFormat);
  const double deviation = 1 / std::sqrt(static_cast<double>(cols));
  const cli::RandomMatrix random = cli::random_matrix(format, rows, cols, deviation, seed, 1);
  return PackedWeights::pack(
      format.spec, {.rows = 16}, rows, cols, 1,
      [&](int64_t row, const PlaneRow& out) { random.matrix.to_planes(row, out); }, random.matrix.codebooks());
}

}  // namespace

Fixture::Fixture(int64_t rows, int64_t cols, int64_t tokens, uint64_t seed)
    : tokens_(tokens), packed_(random_weights(rows, cols, seed)), x_(static_cast<size_t>(tokens * cols)) {
  cli::Gaussian(seed + 1).fill(x_, 1);
}

const ActivationsView& Fixture::formed(const Context& context, const Choice& choice) {
  std::unique_ptr<Activations>& made = formed_[choice.kernel];
  if (!made) made = std::make_unique<Activations>(context, x());
  return made->get(choice, weights());
}

double Fixture::reference(int64_t m, int64_t n) const {
  const PackedView& w = weights();
  const Planes planes(w.spec, 1, w.cols, w.codebooks.values);
  unpack_row(w, n, planes.row(0));
  std::vector<float> row(static_cast<size_t>(w.cols));
  decode_row(w.spec, planes.row(0), w.cols, row.data());
  double sum = 0;
  for (int64_t k = 0; k < w.cols; ++k) sum += double{x()(m, k)} * double{row[static_cast<size_t>(k)]};
  return sum;
}

}  // namespace octalane::bench
