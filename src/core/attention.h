// Attention in vectors of sixteen, written once for every instruction set that has them: `V` brings the operations. The
// order of every sum depends on the number of positions alone, so the result is the same to the bit whatever V is made
// of, and however many queries are asked together.
#pragma once

#include <cstdint>

#include "core/inline.h"

namespace octalane {

/// Cached keys lie in blocks of sixteen positions, [block][head_dim][16 positions]; values lie in rows,
/// [position][head_dim rounded up to 16, zeros].
inline constexpr int kKeyBlock = 16;
OCTALANE_INLINE constexpr int64_t value_stride(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// `queries` consecutive tokens of one head: query i (of head_dim values, `q_stride` apart) looks at the first
/// positions + i keys, out (`out_stride` apart) = softmax(scale * q K^T) V. Keys and values are IEEE halves; fp32
/// inside. `scores` holds score_floats(queries, positions) values. No positions: zeros.
struct AttendArgs {
  const float* q;
  int64_t q_stride;
  const uint16_t* k;
  const uint16_t* v;
  float* out;
  int64_t out_stride;
  float* scores;
  int64_t head_dim;
  int64_t queries;
  int64_t positions;
  float scale;

  OCTALANE_INLINE int64_t seen(int64_t query) const { return positions + query; }
};

OCTALANE_INLINE constexpr int64_t score_floats(int64_t queries, int64_t positions) {
  return queries * ((positions + queries - 1 + kKeyBlock - 1) / kKeyBlock * kKeyBlock);
}

/// exp(x) for x <= 0 within 2 ulp; below -87.3 it is 0, NaN stays NaN. x = n ln 2 + r, |r| <= ln 2 / 2, and a Taylor
/// polynomial of degree 7 (its remainder is below 2^-26).
template <class V>
OCTALANE_INLINE V exp_of_negative(V x) {
  constexpr float lowest = -87.3f;
  const V held = V::max(V::all(lowest), x);  // hands on a NaN x
  const V n = V::nearest(V::times(held, V::all(1.44269504f)));
  // ln 2 in two parts; n times the first has at most 16 + 7 significant bits and is exact.
  V r = V::fma(n, V::all(-0.693145752f), held);
  r = V::fma(n, V::all(-1.42860677e-6f), r);
  constexpr float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  V p = V::all(1.0f / 5040);
  for (const float c : coefficients) p = V::fma(p, r, V::all(c));
  return V::zero_where_less(V::times_power_of_two(p, n), x, lowest);
}

/// Queries [first, first + Q) together: keys and values are read once for all of them.
template <class V, int Q>
class AttentionBlock {
 public:
  OCTALANE_INLINE AttentionBlock(const AttendArgs& args, int64_t first)
      : args_(args), first_(first), stride_(blocks(Q - 1) * kKeyBlock) {}

  OCTALANE_INLINE void run() {
    score();
    for (int i = 0; i < Q; ++i) total_[i] = exponentiate(i);
    // Two vectors of columns at a time where there are two.
    int64_t d = 0;
    for (; d + 16 < args_.head_dim; d += 32) weigh<2>(d);
    if (d < args_.head_dim) weigh<1>(d);
  }

 private:
  OCTALANE_INLINE int64_t blocks(int i) const { return (args_.seen(first_ + i) + kKeyBlock - 1) / kKeyBlock; }
  OCTALANE_INLINE float* scores(int i) const { return args_.scores + i * stride_; }

  /// scores = scale * q K^T for whole blocks, and the highest of those that a query may see.
  OCTALANE_INLINE void score() {
    const float* q = args_.q + first_ * args_.q_stride;
    for (int i = 0; i < Q; ++i) highest_[i] = V::all(-__builtin_inff());
    for (int64_t b = 0; b < stride_ / kKeyBlock; ++b) {
      const uint16_t* keys = args_.k + b * kKeyBlock * args_.head_dim;
      V sum[Q];
      for (int i = 0; i < Q; ++i) sum[i] = V::all(0.0f);
      for (int64_t d = 0; d < args_.head_dim; ++d) {
        const V key = V::halves(keys + d * kKeyBlock);
        for (int i = 0; i < Q; ++i) sum[i] = V::fma(V::all(q[i * args_.q_stride + d]), key, sum[i]);
      }
      for (int i = 0; i < Q; ++i) {
        const V s = V::times(sum[i], V::all(args_.scale));
        s.store(scores(i) + b * kKeyBlock);
        highest_[i] = V::max(highest_[i], V::first(s, args_.seen(first_ + i) - b * kKeyBlock, -__builtin_inff()));
      }
    }
  }

  /// scores = exp(scores - highest), 0 past the last position; returns their sum.
  OCTALANE_INLINE float exponentiate(int i) {
    const int64_t seen = args_.seen(first_ + i);
    const V top = V::all(V::highest(highest_[i]));
    V total = V::all(0.0f);
    for (int64_t b = 0; b < blocks(i); ++b) {
      float* at = scores(i) + b * kKeyBlock;
      const V e = V::first(exp_of_negative(V::minus(V::load(at), top)), seen - b * kKeyBlock, 0.0f);
      e.store(at);
      total = V::plus(total, e);
    }
    return seen > 0 ? V::sum(total) : 1.0f;
  }

  /// out = (scores V) / total for 16 * Vectors columns. What all queries see is read once; then each goes on alone.
  template <int Vectors>
  OCTALANE_INLINE void weigh(int64_t d) const {
    const int64_t stride = value_stride(args_.head_dim);
    V sum[Q][Vectors];
    for (int i = 0; i < Q; ++i) {
      for (int c = 0; c < Vectors; ++c) sum[i][c] = V::all(0.0f);
    }
    const uint16_t* values = args_.v + d;
    for (int64_t p = 0; p < args_.seen(first_); ++p, values += stride) {
      V value[Vectors];
      for (int c = 0; c < Vectors; ++c) value[c] = V::halves(values + 16 * c);
      for (int i = 0; i < Q; ++i) {
        const V weight = V::all(scores(i)[p]);
        for (int c = 0; c < Vectors; ++c) sum[i][c] = V::fma(weight, value[c], sum[i][c]);
      }
    }
    for (int i = 0; i < Q; ++i) {
      for (int64_t p = args_.seen(first_); p < args_.seen(first_ + i); ++p) {
        const V weight = V::all(scores(i)[p]);
        for (int c = 0; c < Vectors; ++c) {
          sum[i][c] = V::fma(weight, V::halves(args_.v + d + p * stride + 16 * c), sum[i][c]);
        }
      }
      float* out = args_.out + (first_ + i) * args_.out_stride + d;
      for (int c = 0; c < Vectors; ++c) {
        V::over(sum[i][c], V::all(total_[i])).store_first(out + 16 * c, args_.head_dim - d - 16 * c);
      }
    }
  }

  const AttendArgs& args_;
  int64_t first_, stride_;
  V highest_[Q];
  float total_[Q];
};

template <class V>
OCTALANE_INLINE void attend_in_vectors(const AttendArgs& args) {
  int64_t i = 0;
  for (; i + V::kQueries <= args.queries; i += V::kQueries) AttentionBlock<V, V::kQueries>(args, i).run();
  for (; i < args.queries; ++i) AttentionBlock<V, 1>(args, i).run();
}

}  // namespace octalane
