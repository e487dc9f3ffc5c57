// Attention of one query head against fp64 softmax.
#include <cmath>
#include <limits>

#include "core/half.h"
#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

struct Head {
  int64_t dim, positions, stride;
  std::vector<float> q;
  std::vector<uint16_t> k, v;
  float scale = 0.125f;

  Head(int64_t head_dim, int64_t count, float spread, uint32_t seed)
      : dim(head_dim), positions(count), stride(head_dim + 24), q(static_cast<size_t>(head_dim)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : q) value = spread * normal(random);
    // Gaps between cached rows hold NaN: no kernel may read them.
    k.assign(static_cast<size_t>(positions * stride), 0x7E00);
    v = k;
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t d = 0; d < dim; ++d) {
        k[static_cast<size_t>(p * stride + d)] = f32_to_f16(normal(random));
        v[static_cast<size_t>(p * stride + d)] = f32_to_f16(normal(random));
      }
    }
  }

  std::vector<float> run(const IsaTable& isa) const {
    std::vector<float> out(static_cast<size_t>(dim) + 1, -7.0f), scores(static_cast<size_t>(positions) + 1, -7.0f);
    attend(isa)({.q = q.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .out = out.data(),
                 .scores = scores.data(),
                 .head_dim = dim,
                 .positions = positions,
                 .kv_stride = stride,
                 .scale = scale});
    EXPECT_EQ(out.back(), -7.0f) << "written past out";
    EXPECT_EQ(scores.back(), -7.0f) << "written past scores";
    out.pop_back();
    return out;
  }

  struct Reference {
    std::vector<double> out, magnitude;
    double score_magnitude = 0;  // the largest sum of |q k| * scale
  };
  Reference reference() const {
    Reference r;
    std::vector<double> weight(static_cast<size_t>(positions));
    double highest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t p = 0; p < positions; ++p) {
      double dot = 0, magnitude = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const double product = double{q[static_cast<size_t>(d)]} * f16_to_f32(k[static_cast<size_t>(p * stride + d)]);
        dot += product;
        magnitude += std::fabs(product);
      }
      weight[static_cast<size_t>(p)] = scale * dot;
      highest = std::fmax(highest, scale * dot);
      r.score_magnitude = std::fmax(r.score_magnitude, scale * magnitude);
    }
    for (double& w : weight) total += w = std::exp(w - highest);
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0, magnitude = 0;
      for (int64_t p = 0; p < positions; ++p) {
        const double value = f16_to_f32(v[static_cast<size_t>(p * stride + d)]);
        sum += weight[static_cast<size_t>(p)] / total * value;
        magnitude += weight[static_cast<size_t>(p)] / total * std::fabs(value);
      }
      r.out.push_back(sum);
      r.magnitude.push_back(magnitude);
    }
    return r;
  }
};

/// |error| of a score is at most (dim + 2) u times its magnitude, so the weights' relative error is twice that (their
/// own and the total's), plus 2 ulp of exp, plus one rounding for each position summed, twice.
void expect_close(const IsaTable& isa, const Head& head) {
  const std::vector<float> out = head.run(isa);
  const Head::Reference wanted = head.reference();
  const double unit = 0x1p-24;
  const double relative = 2 * static_cast<double>(head.dim + 4) * unit * wanted.score_magnitude + 8 * unit +
                          2 * static_cast<double>(head.positions + 1) * unit;
  for (size_t d = 0; d < out.size(); ++d) {
    // exp of less than -87.3 counts as zero: less than 2^-125 for each position.
    ASSERT_NEAR(out[d], wanted.out[d], relative * wanted.magnitude[d] + 0x1p-100)
        << isa.name << " dim " << head.dim << " positions " << head.positions << " d " << d;
  }
}

TEST(Attend, equals_fp64_softmax_for_any_head_size_and_length) {
  for_each_isa([](const IsaTable& isa) {
    uint32_t seed = 1;
    for (const int64_t dim : {1, 7, 8, 20, 64, 80, 96, 128, 256}) {
      for (const int64_t positions : {1, 2, 7, 8, 9, 33, 300}) expect_close(isa, Head(dim, positions, 1.0f, ++seed));
    }
  });
}

TEST(Attend, stays_finite_and_close_when_scores_spread_over_hundreds) {
  for_each_isa([](const IsaTable& isa) {
    for (uint32_t seed = 1; seed < 5; ++seed) expect_close(isa, Head(64, 100, 100.0f, seed));
  });
}

TEST(Attend, equal_scores_give_the_mean) {
  for_each_isa([](const IsaTable& isa) {
    Head head(16, 64, 1.0f, 5);
    std::fill(head.q.begin(), head.q.end(), 0.0f);
    expect_close(isa, head);
  });
}

TEST(Attend, no_positions_give_zeros) {
  for_each_isa([](const IsaTable& isa) {
    for (const float value : Head(20, 0, 1.0f, 6).run(isa)) EXPECT_EQ(value, 0.0f);
  });
}

TEST(Attend, a_nan_query_gives_nan_and_nothing_else_does) {
  for_each_isa([](const IsaTable& isa) {
    Head head(20, 9, 1.0f, 7);
    for (const float value : head.run(isa)) EXPECT_TRUE(std::isfinite(value));
    head.q[3] = std::numeric_limits<float>::quiet_NaN();
    for (const float value : head.run(isa)) EXPECT_TRUE(std::isnan(value));
  });
}

TEST(Attend, the_same_arguments_give_the_same_bits) {
  for_each_isa([](const IsaTable& isa) {
    const Head head(64, 77, 1.0f, 8);
    const std::vector<float> first = head.run(isa);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(head.run(isa), first);
  });
}

}  // namespace
}  // namespace octalane::test
