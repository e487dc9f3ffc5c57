// The fp64 references that products are judged by.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.h"
#include "linear/linear.h"

namespace octalane {

/// y[M, N] fp64 = x[M, K] W[N, K]^T over the decoded fp32 weights, summed in ascending K. For the weight rows listed
/// (any order); y has one column per listed row.
void reference_product(const Linear& linear, MatrixView<const float> x, const std::vector<int64_t>& rows, int threads,
                       MatrixView<double> y);

/// Relative L2 distances of a product's output: |y - reference| / |reference| over the rows looked at (|y| itself when
/// the reference is all zero).
struct ProductErrors {
  double kernel = 0;  ///< against fp64 on the very operands that the kernel multiplied: a bug if not tiny
  double total = 0;   ///< against fp64 on the fp32 activations and the decoded weights
  /// Of the weights that the kernel multiplied from the decoded ones: rounded, or encoded again.
  double weights = 0;
};

/// Checks y = linear.multiply(x) on up to `max_rows` weight rows, evenly spread, all tokens. The staged operands are
/// rebuilt from the kernel's own activations (x.get) and the packed weights.
ProductErrors measure_errors(const Context& context, const Linear& linear, Activations& x, MatrixView<const float> y,
                             int64_t max_rows);

}  // namespace octalane
