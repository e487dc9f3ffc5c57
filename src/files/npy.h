// NumPy .npy files, versions 1.0 to 3.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/matrix_view.h"
#include "core/status.h"

namespace octalane {

/// A dense row-major fp32 matrix.
struct Matrix {
  std::vector<float> values;
  int64_t rows = 0;
  int64_t cols = 0;

  MatrixView<float> view() { return dense_view(values.data(), rows, cols); }
  MatrixView<const float> view() const { return dense_view(values.data(), rows, cols); }
};

/// Reads float32 (little endian) of one or two dimensions, C or Fortran order; one dimension reads as one row. The file
/// must end where the values end. Errors name the path and the byte offset.
Expected<Matrix> read_npy(const std::string& path);
/// The same over bytes; `name` stands for the path.
Expected<Matrix> parse_npy(std::span<const std::byte> bytes, const std::string& name);
/// Writes float32 [rows, cols], C order, to a temporary name and renames it.
Status write_npy(const std::string& path, MatrixView<const float> matrix);

}  // namespace octalane
