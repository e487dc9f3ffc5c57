// The encoder without moments: what it finds, what it is given that is not as expected, and that it always answers
// alike.
#include "additive/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "additive/fit.h"
#include "additive/matrices.h"
#include "additive/sums.h"
#include "core/half.h"

namespace octalane::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr AdditiveShape kShapes[] = {{1, 4, 128}, {2, 8, 128}, {1, 8, 32}, {2, 4, 64}, {2, 8, 0}};

AdditiveMatrix encoded(const Values& w, int64_t cols, const AdditiveShape& shape, const EncodeOptions& options = {}) {
  const Expected<AdditiveMatrix> matrix =
      encode_additive(w.data(), static_cast<int64_t>(w.size()) / cols, cols, shape, options);
  EXPECT_TRUE(matrix.has_value()) << matrix.error().message;
  return *matrix;
}

TEST(AdditiveEncode, a_matrix_made_of_few_codewords_is_found_again_to_rounding) {
  const int64_t rows = 96, cols = 576;
  std::mt19937 random(3);
  Values w(static_cast<size_t>(rows * cols));
  for (int64_t n = 0; n < rows; ++n) {
    const float scale = 0.01f * static_cast<float>(1 + random() % 50);
    for (int64_t k = 0; k < cols; k += 8) {
      // Every sign pattern over eight magnitudes, so that each group has the same norm.
      const auto signs = static_cast<unsigned>(random() % 256);
      for (int64_t t = 0; t < 8; ++t) {
        const float sign = (signs >> t & 1u) != 0 ? 1.0f : -1.0f;
        w[static_cast<size_t>(n * cols + k + t)] = sign * scale * static_cast<float>(t + 1);
      }
    }
  }
  for (const int books : {1, 2}) {
    const AdditiveShape shape{.books = books, .vector = 8, .group = 128};
    EXPECT_LT(relative_error(w, decoded(encoded(w, cols, shape))), std::ldexp(1.0, -11)) << books;
  }
}

TEST(AdditiveEncode, rounds_never_raise_the_error_and_beat_residual_kmeans) {
  const int64_t cols = 256;
  const Values w = uneven_values(128, cols, 5);
  for (const AdditiveShape& shape : kShapes) {
    double before = 1;
    const double kmeans = relative_error(w, decoded(encoded(w, cols, shape, {.rounds = 0})));
    for (const int rounds : {0, 1, 2, 4, 8}) {
      const double now = relative_error(w, decoded(encoded(w, cols, shape, {.rounds = rounds})));
      EXPECT_LE(now, before * (1 + 1e-6)) << shape.books << shape.vector << shape.group << " rounds " << rounds;
      before = now;
    }
    EXPECT_LT(before, kmeans * (shape.books == 2 ? 0.96 : 0.995)) << shape.books << shape.vector << shape.group;
  }
}

TEST(AdditiveEncode, two_bits_come_near_what_theory_allows_for_gaussian_weights) {
  const int64_t cols = 512;
  const Values w = normal_values(256 * cols, 6);
  // 2^-R for R bits; a shape has its scales and codebooks on top. Measured 0.297; round to nearest has 0.44.
  EXPECT_LT(relative_error(w, decoded(encoded(w, cols, {2, 8, 128}))), 0.305);
}

TEST(AdditiveEncode, with_all_of_the_beam_each_vector_has_its_nearest_pair) {
  const int64_t rows = 24, cols = 64;
  const Values w = uneven_values(4 * rows, cols, 7);
  const AdditiveShape shape{2, 8, 32};
  const AdditiveMatrix matrix = encoded(w, cols, shape, {.rounds = 3, .beam = 256});
  for (int64_t i = 0; i < rows * cols / 8; i += 5) {
    const double scale = f16_to_f32(matrix.scales[static_cast<size_t>(i * 8 / 32)]);
    const auto distance = [&](int64_t a, int64_t b) {
      double sum = 0;
      for (int64_t t = 0; t < 8; ++t) {
        const double word = double{f16_to_f32(matrix.codebooks[static_cast<size_t>(a * 8 + t)])} +
                            double{f16_to_f32(matrix.codebooks[static_cast<size_t>((256 + b) * 8 + t)])};
        sum += std::pow(double{w[static_cast<size_t>(i * 8 + t)]} - scale * word, 2);
      }
      return sum;
    };
    double best = 1e30;
    for (int64_t pair = 0; pair < 65536; ++pair) best = std::min(best, distance(pair / 256, pair % 256));
    EXPECT_LE(distance(matrix.codes[static_cast<size_t>(2 * i)], matrix.codes[static_cast<size_t>(2 * i + 1)]),
              best + 1e-5 * scale * scale);
  }
}

TEST(AdditiveEncode, threads_never_change_a_bit_and_the_seed_decides) {
  const int64_t cols = 320;
  const Values w = uneven_values(70, cols, 8), moments = moments_of(correlated_inputs(400, cols, 9), cols);
  for (const float* h : {static_cast<const float*>(nullptr), moments.data()}) {
    const EncodeOptions options{.seed = 4, .threads = 1, .rounds = 3, .second_moments = h};
    const AdditiveMatrix alone = encoded(w, cols, {2, 8, 128}, options);
    for (const int threads : {2, 3, 7}) {
      EncodeOptions several = options;
      several.threads = threads;
      const AdditiveMatrix together = encoded(w, cols, {2, 8, 128}, several);
      EXPECT_EQ(alone.codes, together.codes);
      EXPECT_EQ(alone.codebooks, together.codebooks);
      EXPECT_EQ(alone.scales, together.scales);
    }
    EncodeOptions other = options;
    other.seed = 5;
    EXPECT_NE(alone.codes, encoded(w, cols, {2, 8, 128}, other).codes);
  }
}

TEST(AdditiveEncode, sums_are_the_same_for_any_number_of_threads) {
  Values values = normal_values(10007, 9);
  for (size_t i = 0; i < values.size(); i += 100) values[i] *= 1e11f;
  const auto sum = [&](int threads) {
    return additive::sum_in_parts(threads, 10007, 1, [&](int64_t begin, int64_t end, double* out) {
      for (int64_t i = begin; i < end; ++i) *out += double{values[static_cast<size_t>(i)]};
    })[0];
  };
  for (const int threads : {2, 3, 7}) EXPECT_EQ(sum(1), sum(threads));
}

TEST(AdditiveEncode, unused_codewords_become_what_the_worst_vectors_lack) {
  additive::Fit fit{.shape = {2, 8, 32}, .rows = 16, .cols = 32, .vectors = 4, .groups = 1};
  fit.weights = normal_values(16 * 32, 18, 1.0f);
  fit.scales.assign(16, 0.5f);
  fit.books.assign(2 * 256 * 8, 0.25f);
  fit.codes.assign(16 * 4 * 2, 0);
  additive::reseed_unused(fit);
  additive::improve_codes(fit, 256);
  EXPECT_LT(additive::loss(fit), 1e-9);
}

TEST(AdditiveEncode, a_short_last_group_has_a_scale_of_its_own) {
  const int64_t rows = 60, cols = 576;
  Values w = normal_values(rows * cols, 10);
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (i % cols >= 512) w[static_cast<size_t>(i)] *= 0.01f;
  }
  const AdditiveMatrix matrix = encoded(w, cols, {2, 8, 128});
  EXPECT_EQ(matrix.scales.size(), static_cast<size_t>(rows * 5));
  // The small columns weigh little, so their codes are the worse, but not by a scale that is not theirs.
  EXPECT_LT(relative_error(w, decoded(matrix), cols, 512, 576), 0.45);
  EXPECT_LT(relative_error(w, decoded(matrix), cols, 0, 512), 0.30);
}

TEST(AdditiveEncode, fewer_vectors_than_codewords_and_constants_are_kept_to_rounding) {
  for (const AdditiveShape& shape : kShapes) {
    const Values tiny = normal_values(8, 11), small = normal_values(5 * 32, 12), constant(64 * 64, -0.37f);
    EXPECT_LT(relative_error(tiny, decoded(encoded(tiny, 8, shape))), 2e-3);
    EXPECT_LT(relative_error(small, decoded(encoded(small, 32, shape))), 2e-3);
    EXPECT_LT(relative_error(constant, decoded(encoded(constant, 64, shape))), 2e-3);
  }
}

TEST(AdditiveEncode, groups_of_zeros_get_scale_zero) {
  const Values zeros(32 * 64, 0.0f);
  EXPECT_THAT(encoded(zeros, 64, {2, 8, 32}).scales, Each(0));
  EXPECT_THAT(decoded(encoded(zeros, 64, {2, 8, 32})), Each(0.0f));
  Values some = normal_values(32 * 64, 13);
  std::fill_n(some.begin() + 64, 32, 0.0f);
  const AdditiveMatrix matrix = encoded(some, 64, {2, 8, 32});
  EXPECT_EQ(matrix.scales[2], 0);
  EXPECT_NE(matrix.scales[3], 0);
}

TEST(AdditiveEncode, nan_counts_as_zero_and_infinities_saturate) {
  const int64_t cols = 64;
  Values w = normal_values(64 * cols, 14), zero = w;
  w[70] = std::numeric_limits<float>::quiet_NaN();
  zero[70] = 0;
  EXPECT_EQ(encoded(w, cols, {2, 8, 32}).codes, encoded(zero, cols, {2, 8, 32}).codes);
  w[200] = -std::numeric_limits<float>::infinity();
  w[300] = 3e38f;
  const Values after = decoded(encoded(w, cols, {2, 8, 32}));
  EXPECT_NEAR(after[200], -65504.0, 65504 * 0.02);
  EXPECT_NEAR(after[300], 65504.0, 65504 * 0.02);
  for (const float value : after) EXPECT_TRUE(std::isfinite(value));
}

TEST(AdditiveEncode, magnitudes_far_from_one_lose_nothing) {
  const int64_t cols = 128;
  const Values w = normal_values(64 * cols, 15);
  const double usual = relative_error(w, decoded(encoded(w, cols, {2, 8, 64})));
  for (const float factor : {1e-8f, 1e-6f, 1e-3f, 1e3f, 1e5f}) {
    Values scaled = w;
    for (float& value : scaled) value *= factor;
    EXPECT_NEAR(relative_error(scaled, decoded(encoded(scaled, cols, {2, 8, 64}))), usual, 0.01) << factor;
  }
}

TEST(AdditiveEncode, what_cannot_be_encoded_is_refused_in_one_line) {
  const Values w = normal_values(64 * 64, 16);
  const auto refused = [&](int64_t cols, const AdditiveShape& shape, const EncodeOptions& options = {}) {
    const Expected<AdditiveMatrix> matrix = encode_additive(w.data(), 64, cols, shape, options);
    return matrix ? "" : matrix.error().message;
  };
  EXPECT_THAT(refused(64, {3, 8, 128}), HasSubstr("got 3 of 8"));
  EXPECT_THAT(refused(64, {2, 5, 128}), HasSubstr("got 2 of 5"));
  EXPECT_THAT(refused(64, {2, 8, 48}), HasSubstr("48"));
  EXPECT_THAT(refused(60, {2, 8, 64}), HasSubstr("64 x 60"));
  EXPECT_THAT(refused(64, {2, 8, 64}, {.beam = 12}), HasSubstr("got 12"));
  Values moments(64 * 64, 0.0f);
  EXPECT_THAT(refused(64, {2, 8, 64}, {.second_moments = moments.data()}), HasSubstr("positive"));
  moments[65 * 3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refused(64, {2, 8, 64}, {.second_moments = moments.data()}), HasSubstr("row 3, column 3"));
}

TEST(AdditiveEncode, progress_rises_and_cancelling_ends_it) {
  const Values w = normal_values(64 * 64, 17);
  double last = -1;
  int asked = 0;
  EncodeOptions options{.progress = [&](double share) {
    EXPECT_GT(share, last);
    EXPECT_LT(share, 1.0);
    last = share;
  }};
  options.cancelled = [&] { return ++asked == 3; };
  EXPECT_EQ(encode_additive(w.data(), 64, 64, {2, 8, 64}, options).error().message, "cancelled");
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace octalane::test
