// Additive codebooks: v columns of a row are the sum of one codeword of each of m codebooks, times the scale of their
// group. Codebooks belong to the whole matrix: W[n, v j + t] = scale[n, v j / g] * sum_c codebook[c][code[n, j, c]][t].
// AQLM, https://arxiv.org/abs/2401.06118; CodeGEMM, https://arxiv.org/abs/2512.17970
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/code_spec.h"
#include "core/status.h"

namespace octalane {

struct Format;
struct StoredMatrix;

/// Codes are always of 8 bits.
struct AdditiveShape {
  int books = 2;   ///< m: 1 or 2
  int vector = 8;  ///< v: 4 or 8 columns of a codeword
  int group = 0;   ///< columns of a scale: 32, 64 or 128; 0: one scale for the row

  /// Bytes of the codes of a row.
  constexpr int64_t code_bytes(int64_t cols) const { return cols / vector * books; }
  /// Scales of a row; the last group may be shorter.
  constexpr int64_t groups(int64_t cols) const { return group == 0 ? 1 : (cols + group - 1) / group; }
  constexpr int64_t codebook_values() const { return int64_t{kCodewords} * books * vector; }
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

/// The tensors that such a matrix lies in, in this order.
inline constexpr std::array<std::string_view, 3> kAdditiveParts{"codes", "codebooks", "scales"};

/// How files hold one. CodeGEMM: codes int32 [m][K / v / 4][N], four vectors a word, the first in its low byte; scales
/// fp16 [groups][N]. AQLM, by rows: codes int8 [N][K / v][m], scales fp16 [N]. Both: codebooks fp16 [m][256][v].
struct AdditiveLayout {
  AdditiveShape shape;
  bool by_rows = false;
};

/// Null when octalane has no such format.
const Format* find_additive_format(const AdditiveLayout& layout);

/// The sizes that its shape asks for, and finite codebooks; the error names what is wrong.
Status check_additive(const AdditiveMatrix& matrix);

/// The bytes of each part as files hold them. Precondition: check_additive(matrix).
std::array<std::vector<std::byte>, 3> additive_parts(const AdditiveLayout& layout, const AdditiveMatrix& matrix);

/// All of a stored matrix; row r is the stored row source(r), without `source` row r. Precondition: its format is
/// additive and all parts are there.
AdditiveMatrix additive_matrix(const StoredMatrix& stored, const std::function<int64_t(int64_t row)>& source = {});

/// What StoredMatrix::read_row does for these: codes [K / v][m] of one row, then its fp16 scales.
void read_additive_row(const StoredMatrix& stored, int64_t row, std::byte* out);

}  // namespace octalane
