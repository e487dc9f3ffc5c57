#include <immintrin.h>

#include <cmath>

#include "additive/expanded.h"
#include "core/half.h"

namespace octalane::bench {
namespace {

constexpr int kRows = 16;

/// One row: half(scale * (sum of codewords)).
void expand_row(const PackedView& w, int64_t n, uint16_t* out) {
  const int books = w.spec.code.books, row = static_cast<int>(n % kRows);
  for (int64_t column = 0; column < w.cols; column += 8, out += 8) {
    const std::byte* const record = w.at(n / kRows, column / w.record.cols);
    const int64_t inside = column % w.record.cols;
    const auto* const code = reinterpret_cast<const uint8_t*>(record) + (inside / 8 * kRows + row) * books;
    __m256 sum = _mm256_loadu_ps(w.codebooks.values + code[0] * 8);
    if (books == 2) sum = _mm256_add_ps(sum, _mm256_loadu_ps(w.codebooks.values + (kCodewords + code[1]) * 8));
    uint16_t bits = 0;
    __builtin_memcpy(&bits, record + w.record.scale + (inside / w.spec.scale.group * kRows + row) * 2, sizeof bits);
    const __m256 weights = _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(bits)), sum);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(weights, _MM_FROUND_TO_NEAREST_INT));
  }
}

float multiply_row(const uint16_t* w, const float* x, int64_t cols) {
  __m256 sums[4] = {};
  int64_t c = 0;
  for (; c + 32 <= cols; c += 32) {
    for (int i = 0; i < 4; ++i) {
      const __m256 weights = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + c + 8 * i)));
      sums[i] = _mm256_fmadd_ps(weights, _mm256_loadu_ps(x + c + 8 * i), sums[i]);
    }
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  float y = 0;
  for (const float lane : lanes) y += lane;
  return y;
}

}  // namespace

void expand_and_multiply(const MatmulArgs& args, std::vector<uint16_t>& expanded) {
  const PackedView& w = args.w;
  expanded.resize(static_cast<size_t>(w.rows * w.cols));
  for (int64_t n = 0; n < w.rows; ++n) expand_row(w, n, expanded.data() + n * w.cols);
  for (int64_t n = 0; n < w.rows; ++n) {
    args.y(0, n) = multiply_row(expanded.data() + n * w.cols, args.x.f32, w.cols);
  }
}

}  // namespace octalane::bench
