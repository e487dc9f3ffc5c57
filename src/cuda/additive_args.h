// Weights of codebooks as they lie in a device's memory, and what their product kernels are launched with. Known to
// host and device code.
//
// Codes lie in records of 64 rows by 64 columns, scales beside them; blocks of 64 rows follow each other along N (a
// multiple of 128 rows), records and scales of a block along K (a multiple of 128 columns). What is padding has codes
// 0 and scales 0.
// A record belongs to 128 threads t = 32 * (row / 16) + 4 * (row % 8) + c, c = 0..3; a thread holds rows r and r + 8
// (h = 0, 1) and, of each 32 columns u = 0, 1, the columns 8c..8c+7: one codeword of 8 values, or two of 4 (q = 0, 1).
//   codes: [t][u][q][h][book], a byte each
//   scales: binary16, [group][64 rows] in the order of scale_position, so that a thread's two are one word
#pragma once

#include <cstdint>

#include "cuda/gemm_args.h"

namespace octalane::cuda {

inline constexpr int kBookCodes = 256;  ///< codewords of a book

/// Bytes of the codes of a record for each of its threads: 4, 8 or 16.
constexpr int code_bytes_of_thread(int books, int vector) { return 2 * (8 / vector) * 2 * books; }

constexpr int scale_position(int row) { return row / 16 * 16 + row % 8 * 2 + row / 8 % 2; }

/// The position, among 32 columns of bfloat16 activations, of column k: the lanes of a warp then hold a codeword's
/// columns where it was decoded, the first half of them in one instruction, the second in the next.
constexpr int codeword_position(int k) { return k % 8 / 4 * 16 + k / 8 * 2 + k % 2 + k / 2 % 2 * 8; }

/// GemmArgs::records are the codes, x lies in the order of codeword_position, y is used by tiles of 64 tokens and more.
struct AdditiveArgs : GemmArgs {
  const uint8_t* scales;     ///< [rows / 64][padded columns / group][64]
  const uint8_t* codebooks;  ///< binary16 [books][256][vector]
  uint16_t* y_bf16;          ///< what y describes, for smaller tiles
  int32_t group;             ///< 32, 64 or 128
  int32_t split;             ///< 1, or 2: clusters of two blocks share the columns of a tile, the first half first
};

}  // namespace octalane::cuda
