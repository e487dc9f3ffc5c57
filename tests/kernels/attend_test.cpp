// Attention of one query head against fp64 softmax.
#include <cmath>
#include <limits>

#include "core/half.h"
#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

/// Queries of one head over a cache; the first sees `positions` keys.
struct Head {
  int64_t dim, positions, queries, stride;
  std::vector<float> q;
  std::vector<uint16_t> k, v;
  float scale = 0.125f;

  Head(int64_t head_dim, int64_t count, float spread, uint32_t seed, int64_t query_count = 1)
      : dim(head_dim),
        positions(count),
        queries(query_count),
        stride(head_dim + 24),
        q(static_cast<size_t>(query_count * stride)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : q) value = spread * normal(random);
    const int64_t seen = count + query_count - 1;
    // What lies past the last key of its block is NaN: it must not weigh in.
    k.assign(static_cast<size_t>((seen + kKeyBlock - 1) / kKeyBlock * kKeyBlock * dim), 0x7E00);
    v.assign(static_cast<size_t>(seen * value_stride(dim)), 0);
    for (int64_t p = 0; p < seen; ++p) {
      for (int64_t d = 0; d < dim; ++d) {
        key(p, d) = f32_to_f16(normal(random));
        value(p, d) = f32_to_f16(normal(random));
      }
    }
  }
  uint16_t& key(int64_t p, int64_t d) {
    return k[static_cast<size_t>((p / kKeyBlock * dim + d) * kKeyBlock + p % kKeyBlock)];
  }
  uint16_t& value(int64_t p, int64_t d) { return v[static_cast<size_t>(p * value_stride(dim) + d)]; }
  double key(int64_t p, int64_t d) const { return f16_to_f32(const_cast<Head*>(this)->key(p, d)); }
  double value(int64_t p, int64_t d) const { return f16_to_f32(const_cast<Head*>(this)->value(p, d)); }

  /// Queries [first, first + count): [count][dim].
  std::vector<float> run(const IsaTable& isa, int64_t first, int64_t count) const {
    const auto scores_size = static_cast<size_t>(score_floats(count, positions + first));
    std::vector<float> out(static_cast<size_t>(count * (dim + 1)), -7.0f), scores(scores_size + 1, -7.0f);
    attend(isa)({.q = q.data() + first * stride,
                 .q_stride = stride,
                 .k = k.data(),
                 .v = v.data(),
                 .out = out.data(),
                 .out_stride = dim + 1,
                 .scores = scores.data(),
                 .head_dim = dim,
                 .queries = count,
                 .positions = positions + first,
                 .scale = scale});
    EXPECT_EQ(scores.back(), -7.0f) << "written past scores";
    std::vector<float> dense;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i * (dim + 1) + dim)], -7.0f) << "written past out";
      dense.insert(dense.end(), out.begin() + i * (dim + 1), out.begin() + i * (dim + 1) + dim);
    }
    return dense;
  }
  std::vector<float> run(const IsaTable& isa) const { return run(isa, 0, queries); }

  struct Reference {
    std::vector<double> out, magnitude;
    double score_magnitude = 0;  // the largest sum of |q k| * scale
  };
  Reference reference(int64_t query) const {
    Reference r;
    const int64_t seen = positions + query;
    std::vector<double> weight(static_cast<size_t>(seen));
    double highest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t p = 0; p < seen; ++p) {
      double dot = 0, magnitude = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const double product = double{q[static_cast<size_t>(query * stride + d)]} * key(p, d);
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
      for (int64_t p = 0; p < seen; ++p) {
        sum += weight[static_cast<size_t>(p)] / total * value(p, d);
        magnitude += weight[static_cast<size_t>(p)] / total * std::fabs(value(p, d));
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
  const double unit = 0x1p-24;
  for (int64_t query = 0; query < head.queries; ++query) {
    const Head::Reference wanted = head.reference(query);
    const double relative = 2 * static_cast<double>(head.dim + 4) * unit * wanted.score_magnitude + 8 * unit +
                            2 * static_cast<double>(head.positions + query + 1) * unit;
    for (size_t d = 0; d < wanted.out.size(); ++d) {
      // exp of less than -87.3 counts as zero: less than 2^-125 for each position.
      const double got = out[static_cast<size_t>(query * head.dim) + d];
      ASSERT_NEAR(got, wanted.out[d], relative * wanted.magnitude[d] + 0x1p-100)
          << isa.name << " dim " << head.dim << " positions " << head.positions << " query " << query << " d " << d;
    }
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

TEST(Attend, queries_together_equal_fp64_and_give_the_bits_of_each_alone) {
  for_each_isa([](const IsaTable& isa) {
    uint32_t seed = 40;
    for (const int64_t queries : {2, 3, 4, 7, 8, 9, 17, 20}) {
      for (const int64_t positions : {1, 9, 16, 100}) {
        const Head head(queries % 2 == 0 ? 64 : 24, positions, 1.0f, ++seed, queries);
        expect_close(isa, head);
        const std::vector<float> all = head.run(isa);
        for (int64_t i = 0; i < queries; ++i) {
          const std::vector<float> alone = head.run(isa, i, 1);
          for (int64_t d = 0; d < head.dim; ++d) {
            ASSERT_EQ(alone[static_cast<size_t>(d)], all[static_cast<size_t>(i * head.dim + d)]) << isa.name;
          }
        }
      }
    }
  });
}

TEST(Attend, vector_instruction_sets_agree_to_the_bit) {
  std::vector<float> first;
  for_each_isa([&](const IsaTable& isa) {
    if (std::string_view(isa.name) == "scalar") return;
    const std::vector<float> out = Head(80, 333, 2.0f, 90, 11).run(isa);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << isa.name;
  });
}

TEST(Attend, a_later_key_that_is_not_finite_leaves_earlier_queries_alone) {
  for_each_isa([](const IsaTable& isa) {
    Head head(32, 20, 1.0f, 91, 8);
    const std::vector<float> clean = head.run(isa, 0, 4);
    head.key(24, 3) = 0x7C00;
    head.value(25, 5) = 0x7E00;
    const std::vector<float> all = head.run(isa);
    for (size_t i = 0; i < clean.size(); ++i) ASSERT_EQ(all[i], clean[i]) << isa.name;
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
