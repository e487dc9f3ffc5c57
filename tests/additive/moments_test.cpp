// The encoder with second moments: it lowers the error of outputs, as fp64 over the inputs themselves has it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "additive/encode.h"
#include "additive/matrices.h"
#include "additive/second_moments.h"
#include "core/half.h"

namespace octalane::test {
namespace {

struct Case {
  int64_t rows = 256, cols = 192;
  Values w = uneven_values(rows, cols, 21), inputs = correlated_inputs(600, cols, 22),
         moments = moments_of(inputs, cols);

  AdditiveMatrix encoded(const AdditiveShape& shape, int rounds, bool calibrated, int beam = 32) const {
    EncodeOptions options{.rounds = rounds, .beam = beam, .damping = 0.01};
    if (calibrated) options.second_moments = moments.data();
    return encode_additive(w.data(), rows, cols, shape, options).value();
  }
  double error(const AdditiveMatrix& matrix) const { return output_error(w, decoded(matrix), cols, inputs); }
};

TEST(AdditiveMoments, errors_are_those_of_outputs_over_the_inputs) {
  const Case c;
  const Values after = decoded(c.encoded({1, 8, 64}, 2, false));
  const MatrixError got = matrix_error(c.w.data(), after.data(), c.rows, c.cols, c.moments.data(), 2);
  EXPECT_NEAR(got.relative, relative_error(c.w, after), 1e-9);
  EXPECT_NEAR(got.weighted, output_error(c.w, after, c.cols, c.inputs), 1e-5);
  EXPECT_EQ(matrix_error(c.w.data(), after.data(), c.rows, c.cols, nullptr, 2).weighted, got.relative);
}

TEST(AdditiveMoments, sums_over_inputs_are_those_of_fp64_on_any_threads) {
  const int64_t cols = 72;
  Values inputs = correlated_inputs(700, cols, 23);
  const Values wanted = moments_of(inputs, cols);
  for (const int threads : {1, 2, 5}) {
    SecondMoments got(cols);
    for (const auto& [begin, end] : {std::pair{0, 300}, {300, 301}, {301, 700}}) {
      got.add(dense_view<const float>(inputs.data() + begin * cols, end - begin, cols), threads);
    }
    EXPECT_EQ(got.tokens(), 700);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double size = std::sqrt(double{wanted[i / 72 * 73]} * double{wanted[i % 72 * 73]});
      EXPECT_NEAR(got.values()[i], wanted[i], 256 * 0x1p-24 * size);
      EXPECT_EQ(got.values()[i], got.values()[i % 72 * 72 + i / 72]);
    }
  }
  inputs[5] = std::numeric_limits<float>::infinity();
  SecondMoments spoiled(cols);
  spoiled.add(dense_view<const float>(inputs.data(), 1, cols), 1);
  EXPECT_EQ(spoiled.values()[5 * 72 + 5], 0.0f);
  EXPECT_EQ(spoiled.values()[0], inputs[0] * inputs[0]);
}

TEST(AdditiveMoments, feeding_errors_forward_alone_lowers_the_error_of_outputs) {
  const Case c;
  for (const AdditiveShape& shape : {AdditiveShape{1, 8, 64}, {2, 8, 128}, {1, 4, 0}}) {
    EXPECT_LT(c.error(c.encoded(shape, 0, true)), 0.85 * c.error(c.encoded(shape, 0, false)));
  }
}

TEST(AdditiveMoments, rounds_lower_the_error_of_outputs_further) {
  const Case c;
  for (const AdditiveShape& shape : {AdditiveShape{1, 8, 64}, {2, 8, 128}, {1, 4, 0}}) {
    const double free = c.error(c.encoded(shape, 6, false)), fed = c.error(c.encoded(shape, 0, true)),
                 calibrated = c.error(c.encoded(shape, 6, true));
    EXPECT_LT(calibrated, 0.93 * fed);
    EXPECT_LT(calibrated, 0.65 * free);
  }
}

TEST(AdditiveMoments, unit_moments_find_what_no_moments_find) {
  Case c;
  const double free = relative_error(c.w, decoded(c.encoded({2, 8, 64}, 6, false)));
  c.moments.assign(c.moments.size(), 0.0f);
  for (int64_t i = 0; i < c.cols; ++i) c.moments[static_cast<size_t>(i * c.cols + i)] = 123.0f;
  EXPECT_NEAR(relative_error(c.w, decoded(c.encoded({2, 8, 64}, 6, true))), free, 0.01);
}

/// The last vector of a row is the last to get its codes: against fp64, no pair is better while the others stay.
TEST(AdditiveMoments, codes_are_the_best_for_the_outputs_while_all_others_stay) {
  const Case c;
  const AdditiveShape shape{2, 8, 64};
  const AdditiveMatrix matrix = c.encoded(shape, 3, true, 256);
  const Values after = decoded(matrix);
  double mean = 0;
  for (int64_t k = 0; k < c.cols; ++k) mean += double{c.moments[static_cast<size_t>(k * c.cols + k)]} / double(c.cols);
  const auto moment = [&](int64_t i, int64_t k) {
    return double{c.moments[static_cast<size_t>(i * c.cols + k)]} + (i == k ? 0.01 * mean : 0.0);
  };
  const int64_t at = c.cols - 8, j = at / 8;
  for (int64_t n = 0; n < c.rows; n += 25) {
    const uint8_t* codes = matrix.codes.data() + (n * c.cols / 8 + j) * 2;
    const double scale = f16_to_f32(matrix.scales[static_cast<size_t>(n * shape.groups(c.cols) + at / 64)]);
    double pull[8] = {};  // E H at the vector
    for (int64_t t = 0; t < 8; ++t) {
      for (int64_t k = 0; k < c.cols; ++k) {
        const auto i = static_cast<size_t>(n * c.cols + k);
        pull[t] += (double{c.w[i]} - double{after[i]}) * moment(k, at + t);
      }
    }
    const auto word = [&](int64_t a, int64_t b, int64_t t) {
      return double{f16_to_f32(matrix.codebooks[static_cast<size_t>(a * 8 + t)])} +
             double{f16_to_f32(matrix.codebooks[static_cast<size_t>((256 + b) * 8 + t)])};
    };
    double best = 0;  // change of the loss
    for (int64_t pair = 0; pair < 65536; ++pair) {
      double step[8], change = 0;
      for (int64_t t = 0; t < 8; ++t) {
        step[t] = scale * (word(pair / 256, pair % 256, t) - word(codes[0], codes[1], t));
        change -= 2 * step[t] * pull[t];
      }
      for (int64_t s = 0; s < 8; ++s) {
        for (int64_t t = 0; t < 8; ++t) change += step[s] * step[t] * moment(at + s, at + t);
      }
      best = std::min(best, change);
    }
    EXPECT_GT(best, -1e-5 * scale * scale * mean) << n;
  }
}

}  // namespace
}  // namespace octalane::test
