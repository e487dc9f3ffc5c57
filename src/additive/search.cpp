#include "additive/search.h"

#include <algorithm>
#include <limits>

#include "additive/wide.h"
#include "core/parallel.h"

namespace octalane::additive {
namespace {

constexpr int64_t kTogether = 4;  ///< vectors that share the loads of a table
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// costs[i][c] = |codeword c|^2 - 2 x_i . codeword c, for kTogether vectors.
template <int kVector>
OCTALANE_INLINE void dot_tables(const float* table, const float* norms, int64_t entries, const float* x, float* costs) {
  for (int64_t c = 0; c < entries; c += kLanes) {
    Wide sums[kTogether];
    for (int64_t i = 0; i < kTogether; ++i) sums[i] = wide(norms + c)->value;
    for (int t = 0; t < kVector; ++t) {
      const Wide column = wide(table + t * entries + c)->value;
      for (int64_t i = 0; i < kTogether; ++i) sums[i] += column * x[i * kVector + t];
    }
    for (int64_t i = 0; i < kTogether; ++i) wide(costs + i * entries + c)->value = sums[i];
  }
}

/// Where the least of 256 values is, the first of equals.
OCTALANE_INLINE int64_t argmin(const float* values) {
  Wide least[4];
  WideInt at[4] = {};
  for (int k = 0; k < 4; ++k) least[k] = wide(values)[k].value;
  for (int32_t i = 4; i < kCodewords / kLanes; i += 4) {
    for (int k = 0; k < 4; ++k) {
      const Wide next = wide(values)[i + k].value;
      const WideInt less = next < least[k];
      least[k] = less ? next : least[k];
      at[k] = less ? WideInt{} + i : at[k];
    }
  }
  int64_t best = at[0][0] * kLanes;
  float value = least[0][0];
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t here = (at[k][lane] + k) * kLanes + lane;
      if (least[k][lane] < value || (least[k][lane] == value && here < best)) {
        value = least[k][lane];
        best = here;
      }
    }
  }
  return best;
}

OCTALANE_INLINE float least_lane(const Wide* least) {
  float value = least[0][0];
  for (int64_t lane = 1; lane < kLanes; ++lane) value = std::min(value, least[0][lane]);
  return value;
}

/// The least of 256.
OCTALANE_INLINE float least_value(const float* values) {
  Wide least[4];
  for (int k = 0; k < 4; ++k) least[k] = wide(values)[k].value;
  for (int64_t i = 4; i < kCodewords / kLanes; i += 4) {
    for (int k = 0; k < 4; ++k) least[k] = wide(values)[i + k].value < least[k] ? wide(values)[i + k].value : least[k];
  }
  for (int k = 1; k < 4; ++k) least[0] = least[k] < least[0] ? least[k] : least[0];
  return least_lane(least);
}

/// The least a[i] + b[i] of 256.
OCTALANE_INLINE float least_sum(const float* a, const float* b) {
  Wide least[4];
  for (int k = 0; k < 4; ++k) least[k] = wide(a)[k].value + wide(b)[k].value;
  for (int64_t i = 4; i < kCodewords / kLanes; i += 4) {
    for (int k = 0; k < 4; ++k) {
      const Wide next = wide(a)[i + k].value + wide(b)[i + k].value;
      least[k] = next < least[k] ? next : least[k];
    }
  }
  for (int k = 1; k < 4; ++k) least[0] = least[k] < least[0] ? least[k] : least[0];
  return least_lane(least);
}

struct PairTables {
  const float *gram, *gram_min;
  int beam;
};

/// The least of the values at i, i + beam, i + 2 beam ... for each i < beam, and where it is; beam a multiple of 8.
OCTALANE_INLINE void least_of_parts(const float* values, int beam, float* least, int32_t* at) {
  for (int part = 0; part < beam; part += kLanes) {
    Wide best = wide(values + part)->value;
    WideInt where = {};
    for (int32_t c = beam; c < kCodewords; c += beam) {
      const Wide next = wide(values + part + c)->value;
      const WideInt less = next < best;
      best = less ? next : best;
      where = less ? WideInt{} + c : where;
    }
    wide(least + part)->value = best;
    for (int lane = 0; lane < kLanes; ++lane) at[part + lane] = where[lane] + part + lane;
  }
}

/// The best pair of those with a promising first codeword: the first codebook is dealt out to `beam` parts, and of each
/// the one is tried that can reach least.
OCTALANE_INLINE void best_pair(const PairTables& tables, const float* first, const float* second, uint8_t* codes,
                               bool improve) {
  const float least_second = least_value(second);
  alignas(32) float reach[kCodewords], least[kCodewords];
  int32_t at[kCodewords];
  for (int64_t i = 0; i < kCodewords; i += kLanes)
    wide(reach + i)->value = wide(first + i)->value + wide(tables.gram_min + i)->value;
  least_of_parts(reach, tables.beam, least, at);
  float best = kInfinity;
  int64_t best_first = -1;
  if (improve) best = first[codes[0]] + (second[codes[1]] + tables.gram[codes[0] * kCodewords + codes[1]]);
  const auto attempt = [&](int64_t c) {
    const float cost = first[c] + least_sum(second, tables.gram + c * kCodewords);
    if (cost < best) {
      best = cost;
      best_first = c;
    }
  };
  // The most promising of all first, so that the others need not be tried.
  const auto most = static_cast<int>(std::min_element(least, least + tables.beam) - least);
  attempt(at[most]);
  for (int part = 0; part < tables.beam; ++part) {
    if (part != most && least[part] + least_second < best) attempt(at[part]);
  }
  if (best_first < 0) return;
  alignas(32) float sums[kCodewords];
  const float* row = tables.gram + best_first * kCodewords;
  for (int64_t i = 0; i < kCodewords; i += kLanes)
    wide(sums + i)->value = wide(second + i)->value + wide(row + i)->value;
  codes[0] = static_cast<uint8_t>(best_first);
  codes[1] = static_cast<uint8_t>(argmin(sums));
}

struct Tables {
  const float *table, *norms;
  int books, vector;
  PairTables pair;
};

/// kTogether vectors in x, of which the first `count` get codes.
OCTALANE_WIDE void find_together(const Tables& tables, const float* x, int64_t count, uint8_t* codes,
                                 int64_t code_stride, bool improve) {
  alignas(32) float costs[kTogether * 2 * kCodewords];
  const int64_t entries = tables.books * kCodewords;
  if (tables.vector == 8) {
    dot_tables<8>(tables.table, tables.norms, entries, x, costs);
  } else {
    dot_tables<4>(tables.table, tables.norms, entries, x, costs);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* cost = costs + i * entries;
    uint8_t* code = codes + i * code_stride;
    if (tables.books == 2) {
      best_pair(tables.pair, cost, cost + kCodewords, code, improve);
    } else if (const int64_t best = argmin(cost); !improve || cost[best] < cost[code[0]]) {
      code[0] = static_cast<uint8_t>(best);
    }
  }
}

/// Twice the products of one first codeword with all of the second codebook, and the least of them.
OCTALANE_WIDE void gram_row(const float* table, int64_t entries, int vector, const float* first, float* row,
                            float* least) {
  for (int64_t c = 0; c < kCodewords; c += kLanes) {
    Wide sum = {};
    for (int t = 0; t < vector; ++t) sum -= wide(table + t * entries + kCodewords + c)->value * first[t];
    wide(row + c)->value = sum;
  }
  *least = row[argmin(row)];
}

void turn(const float* x, const float* root, int vector, float* out) {
  for (int t = 0; t < vector; ++t) out[t] = 0;
  for (int s = 0; s < vector; ++s) {
    for (int t = 0; t < vector; ++t) out[t] += x[s] * root[s * vector + t];
  }
}

}  // namespace

CodeSearch::CodeSearch(int books, int vector, int beam)
    : books_(books),
      vector_(vector),
      beam_(beam),
      turned_(books * kCodewords * vector),
      table_(books * kCodewords * vector),
      norms_(books * kCodewords) {
  if (books < 2) return;
  gram_ = AlignedBuffer<float>(kCodewords * kCodewords);
  gram_min_ = AlignedBuffer<float>(kCodewords);
}

void CodeSearch::prepare(const float* codewords, const float* root, int threads) {
  const int64_t entries = books_ * kCodewords;
  has_root_ = root != nullptr;
  if (has_root_) std::copy_n(root, vector_ * vector_, root_);
  for (int64_t c = 0; c < entries; ++c) {
    float* turned = turned_.data() + c * vector_;
    if (has_root_) {
      turn(codewords + c * vector_, root, vector_, turned);
    } else {
      std::copy_n(codewords + c * vector_, vector_, turned);
    }
    norms_[c] = 0;
    for (int t = 0; t < vector_; ++t) {
      norms_[c] += turned[t] * turned[t];
      table_[t * entries + c] = -2.0f * turned[t];
    }
  }
  if (books_ < 2) return;
  parallel_for(threads, kCodewords, kCodewords / 4, [&](int, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      gram_row(table_.data(), entries, vector_, turned_.data() + c * vector_, gram_.data() + c * kCodewords,
               gram_min_.data() + c);
    }
  });
}

void CodeSearch::find(const float* x, int64_t count, uint8_t* codes, int64_t code_stride, bool improve) const {
  const Tables tables{table_.data(),
                      norms_.data(),
                      books_,
                      vector_,
                      {.gram = gram_.data(), .gram_min = gram_min_.data(), .beam = beam_}};
  for (int64_t i = 0; i < count; i += kTogether) {
    const int64_t here = std::min(kTogether, count - i);
    float turned[kTogether * 8] = {};
    for (int64_t k = 0; k < here; ++k) {
      const float* vector = x + (i + k) * vector_;
      if (has_root_) {
        turn(vector, root_, vector_, turned + k * vector_);
      } else {
        std::copy_n(vector, vector_, turned + k * vector_);
      }
    }
    find_together(tables, turned, here, codes + i * code_stride, code_stride, improve);
  }
}

}  // namespace octalane::additive
