#include "additive/fixtures.h"

#include <cmath>
#include <random>

#include "cli/random_blocks.h"
#include "core/half.h"

namespace octalane::bench {
namespace {

constexpr WeightSpec kSpec{.code = {.map = CodeMap::codebook, .bits = 8, .books = 2, .vector = 8},
                           .scale = {.type = ScaleType::f16, .group = 128}};

float as_half(double value) { return f16_to_f32(f32_to_f16(static_cast<float>(value))); }

PackedWeights random_weights(int64_t rows, int64_t cols, uint64_t seed) {
  cli::Gaussian gaussian(seed);
  std::vector<float> codebooks;
  for (size_t i = 0; i < kSpec.code.codebook_values(); ++i) {
    codebooks.push_back(as_half(gaussian.next() * (i < kSpec.code.codebook_values() / 2 ? 1.0 : 1.0 / 3)));
  }
  const double scale = 1 / std::sqrt(static_cast<double>(cols));
  return PackedWeights::pack(
      kSpec, {.rows = 16}, rows, cols, 1,
      [&](int64_t row, const PlaneRow& out) {
        std::mt19937_64 random(seed ^ static_cast<uint64_t>(row) << 20);
        for (int64_t i = 0; i < kSpec.code.code_bytes(cols); ++i) out.codes[i] = static_cast<uint8_t>(random());
        for (int64_t g = 0; g < (cols + 127) / 128; ++g) {
          out.scale[g] = as_half(scale * (0.75 + 0x1p-54 * static_cast<double>(random() >> 11)));
        }
      },
      codebooks);
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
