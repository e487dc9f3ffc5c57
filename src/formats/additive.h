// Additive codebooks: a weight vector is the sum of one codeword of each of m codebooks, times the scale of its row and
// group. Codebooks are shared by the whole matrix: W[n, v j + t] = scale[n, v j / g] * sum_c codebook[c][code[n, j,
// c]][t]. https://arxiv.org/abs/2401.06118 (AQLM), https://arxiv.org/abs/2512.17970 (CodeGEMM)
#pragma once

#include <cstdint>
#include <vector>

namespace octalane {

/// Codes are always of 8 bits: 256 codewords in a codebook.
struct AdditiveShape {
  int books = 2;   ///< m: 1 or 2
  int vector = 8;  ///< v: 4 or 8 columns of a codeword
  int group = 0;   ///< columns of a scale: 32, 64 or 128; 0: one scale for the row

  /// Codes of one codebook in a row of K columns.
  constexpr int64_t vectors(int64_t cols) const { return cols / vector; }
  /// Scales of a row; the last group may be shorter.
  constexpr int64_t groups(int64_t cols) const { return group == 0 ? 1 : (cols + group - 1) / group; }
  constexpr int64_t codebook_values() const { return int64_t{256} * books * vector; }
  friend constexpr bool operator==(const AdditiveShape&, const AdditiveShape&) = default;
};

/// A whole matrix, N x K, row by row whatever the order in a file.
struct AdditiveMatrix {
  AdditiveShape shape;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes;       ///< [N][K / v][m]
  std::vector<uint16_t> codebooks;  ///< [m][256][v], fp16, finite
  std::vector<uint16_t> scales;     ///< [N][groups(K)], fp16
};

}  // namespace octalane
