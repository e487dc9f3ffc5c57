// Few tokens times codebook weights, which are never decoded: sums of codewords meet the activations before the scale,
// so they are not rounded to bfloat16 (Exactness::unrounded). Two ways, and the plan takes what a machine does faster:
//   direct        codeword times activations, eight columns side by side, one sum across them per group
//   partial sums  the product of every codeword with every vector of a token once, then one addition per code
#include "kernels/avx2/codebook.h"

namespace octalane::avx2 {
namespace {

/// The sums of eight vectors.
OCTALANE_INLINE __m256 sums_across(const __m256 (&v)[8]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/// Columns [first, end) of a record, within one group.
struct Columns {
  int first, end;
};

/// body(columns, record) for the pieces of at most `most` columns that the groups of a record are cut into.
template <class Body>
OCTALANE_INLINE void for_each_piece(const PackedView& w, int most, const Body& body) {
  const int piece = w.spec.scale.group < most ? w.spec.scale.group : most;
  for (int c = 0; c < w.record.cols; c += piece) body(Columns{c, c + piece});
}

template <int Books, int Vector>
OCTALANE_INLINE const uint8_t* codes_at(const std::byte* record, int column) {
  return reinterpret_cast<const uint8_t*>(record) + column / Vector * kRows * Books;
}

OCTALANE_INLINE Pair scales_at(const PackedView& w, const std::byte* record, int column) {
  return load_scales(w.spec.scale.type, record + w.record.scale, column / w.spec.scale.group * kRows);
}

/// Eight columns of one row: the codewords of one book side by side.
template <int Books, int Vector>
OCTALANE_INLINE __m256 codewords(const float* books, const uint8_t* codes, int book) {
  const auto word = [&](int vector) OCTALANE_INLINE_LAMBDA {
    return tiles::codeword<Vector>(books, book, codes[vector * kRows * Books + book]);
  };
  if constexpr (Vector == 8) return _mm256_loadu_ps(word(0));
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(word(0))), _mm_loadu_ps(word(1)), 1);
}

/// One group of one tile times M tokens: sums[M][kRows], without the scale.
template <int M, int Books, int Vector>
OCTALANE_INLINE void multiply_group(const PackedView& w, const std::byte* record, Columns columns, const float* x,
                                    int64_t stride, float (&sums)[M][kRows]) {
  constexpr int kTogether = 8 / M;  // rows, so that eight sums stay in registers
  for (int row = 0; row < kRows; row += kTogether) {
    __m256 sum[8];
    unroll<8>([&](auto i) OCTALANE_INLINE_LAMBDA { sum[i.value] = _mm256_setzero_ps(); });
    for (int c = columns.first; c < columns.end; c += 8) {
      const uint8_t* const codes = codes_at<Books, Vector>(record, c) + row * Books;
      __m256 token[M];
      for (int m = 0; m < M; ++m) token[m] = _mm256_loadu_ps(x + m * stride + c);
      unroll<kTogether>([&](auto r) OCTALANE_INLINE_LAMBDA {
        __m256 weights = codewords<Books, Vector>(w.codebooks.values, codes + r.value * Books, 0);
        if constexpr (Books == 2) {
          weights = _mm256_add_ps(weights, codewords<Books, Vector>(w.codebooks.values, codes + r.value * Books, 1));
        }
        unroll<M>([&](auto m) OCTALANE_INLINE_LAMBDA {
          __m256& to = sum[m.value * kTogether + r.value];
          to = _mm256_fmadd_ps(weights, token[m.value], to);
        });
      });
    }
    alignas(32) float across[8];
    _mm256_store_ps(across, sums_across(sum));
    for (int m = 0; m < M; ++m) __builtin_memcpy(sums[m] + row, across + m * kTogether, kTogether * sizeof(float));
  }
}

/// Tokens [token, token + M).
template <int M, int Books, int Vector>
void direct_tiles(const MatmulArgs& args, int64_t token) {
  const PackedView& w = args.w;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    Pair y[M] = {};
    for (int64_t r = 0; r < w.records; ++r) {
      const std::byte* const record = w.at(tile, r);
      const float* const x = args.x.f32 + token * args.x.stride + r * w.record.cols;
      for_each_piece(w, w.spec.scale.group, [&](Columns columns) OCTALANE_INLINE_LAMBDA {
        alignas(32) float sums[M][kRows];
        multiply_group<M, Books, Vector>(w, record, columns, x, args.x.stride, sums);
        const Pair scale = scales_at(w, record, columns.first);
        for (int m = 0; m < M; ++m) {
          for (int h = 0; h < 2; ++h) {
            y[m].v[h] = _mm256_fmadd_ps(scale.v[h], _mm256_load_ps(sums[m] + 8 * h), y[m].v[h]);
          }
        }
      });
    }
    const TileRows rows(w.rows, tile);
    for (int m = 0; m < M; ++m) rows.store(args.y.row(token + m) + tile * kRows, y[m]);
  }
}

/// Partial sums of kTableVectors vectors of columns: [vector][book][codeword], 16 KiB at most.
constexpr int kTableVectors = 8;

template <int Books, int Vector>
OCTALANE_INLINE void fill_tables(const float* books, const float* x, int vectors, float* tables) {
  for (int j = 0; j < vectors; ++j, x += Vector) {
    for (int first = 0; first < Books * kCodewords; first += 8, tables += 8) {
      const float* const words = books + first * Vector;
      __m256 products[8];
      if constexpr (Vector == 8) {
        unroll<8>([&](auto i) OCTALANE_INLINE_LAMBDA {
          products[i.value] = _mm256_mul_ps(_mm256_loadu_ps(words + i.value * 8), _mm256_loadu_ps(x));
        });
        _mm256_storeu_ps(tables, sums_across(products));
      } else {
        const __m256 token = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(x));
        unroll<4>([&](auto i) OCTALANE_INLINE_LAMBDA {  // codewords 2 i and 2 i + 1
          products[i.value] = _mm256_mul_ps(_mm256_loadu_ps(words + i.value * 8), token);
        });
        const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(products[0], products[1]),
                                           _mm256_hadd_ps(products[2], products[3]));  // 0 2 4 6 | 1 3 5 7
        _mm256_storeu_ps(tables, _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
      }
    }
  }
}

/// The partial sums of eight rows over the vectors of a table.
template <int Books>
OCTALANE_INLINE __m256 look_up_rows(const float* tables, const uint8_t* codes, int vectors) {
  float sum[8] = {};
  for (int j = 0; j < vectors; ++j, codes += kRows * Books, tables += Books * kCodewords) {
    unroll<8>([&](auto r) OCTALANE_INLINE_LAMBDA {
      unroll<Books>([&](auto b) OCTALANE_INLINE_LAMBDA {
        sum[r.value] += *tiles::codeword<1>(tables, b.value, codes[r.value * Books + b.value]);
      });
    });
  }
  return _mm256_setr_ps(sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]);
}

/// Pieces of columns outside, tiles inside: the tables of a piece stay in the first-level cache, the sums of all tiles
/// in the second.
template <int Books, int Vector>
void partial_sum_tiles(const MatmulArgs& args) {
  const PackedView& w = args.w;
  auto* const tables = reinterpret_cast<float*>(args.scratch);
  float* const sums = tables + kTableVectors * Books * kCodewords;
  for (int64_t i = 0; i < (args.tile_end - args.tile_begin) * kRows; ++i) sums[i] = 0.0f;
  for (int64_t r = 0; r < w.records; ++r) {
    for_each_piece(w, kTableVectors * Vector, [&](Columns columns) OCTALANE_INLINE_LAMBDA {
      const int vectors = (columns.end - columns.first) / Vector;
      fill_tables<Books, Vector>(w.codebooks.values, args.x.f32 + r * w.record.cols + columns.first, vectors, tables);
      float* y = sums;
      for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile, y += kRows) {
        const std::byte* const record = w.at(tile, r);
        const uint8_t* const codes = codes_at<Books, Vector>(record, columns.first);
        const Pair scale = scales_at(w, record, columns.first);
        for (int h = 0; h < 2; ++h) {
          const __m256 found = look_up_rows<Books>(tables, codes + h * 8 * Books, vectors);
          _mm256_store_ps(y + 8 * h, _mm256_fmadd_ps(scale.v[h], found, _mm256_load_ps(y + 8 * h)));
        }
      }
    });
  }
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    const float* const y = sums + (tile - args.tile_begin) * kRows;
    TileRows(w.rows, tile).store(args.y.row(0) + tile * kRows, {{_mm256_load_ps(y), _mm256_load_ps(y + 8)}});
  }
}

}  // namespace

void codebook_gemv(const MatmulArgs& args) {
  tiles::with_codebooks(args.w.spec.code, [&](auto books, auto vector) OCTALANE_INLINE_LAMBDA {
    int64_t token = 0;
    const auto times = [&](auto m) OCTALANE_INLINE_LAMBDA {
      for (; args.x.rows - token >= m.value; token += m.value) {
        direct_tiles<m.value, books.value, vector.value>(args, token);
      }
    };
    times(Constant<8>{});
    times(Constant<4>{});
    times(Constant<2>{});
    times(Constant<1>{});
  });
}

void codebook_table_gemv(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  tiles::with_codebooks(args.w.spec.code, [&](auto books, auto vector) OCTALANE_INLINE_LAMBDA {
    partial_sum_tiles<books.value, vector.value>(args);
  });
}

int64_t codebook_table_scratch(const Problem& problem) {
  const int64_t tiles = (problem.rows + kRows - 1) / kRows;
  return (int64_t{kTableVectors} * problem.weights.code.books * kCodewords + tiles * kRows) *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace octalane::avx2
