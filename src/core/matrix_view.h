#pragma once

#include <cstdint>

#include "core/inline.h"

namespace octalane {

/// A matrix that somebody else owns: rows x cols elements, strides in elements. Activations are rows = tokens,
/// cols = K; weights are rows = outputs (N), cols = K. A row stride of 0 repeats one row; col_stride != 1 is a
/// transposed view.
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  OCTALANE_INLINE T* row(int64_t r) const { return data + r * row_stride; }
  OCTALANE_INLINE T& operator()(int64_t r, int64_t c) const { return data[r * row_stride + c * col_stride]; }
  OCTALANE_INLINE bool contiguous_rows() const { return col_stride == 1; }
};

/// A dense row-major view.
template <class T>
OCTALANE_INLINE MatrixView<T> dense_view(T* data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols, 1};
}

}  // namespace octalane
