// Descriptors of matrices in device memory, for copies by the tensor memory accelerator.
#pragma once

#include "cuda/driver.h"
#include "cuda/gemm_args.h"

namespace octalane::cuda {

/// A row-major matrix of `rows` by `cols` elements, `stride_bytes` from row to row, that is copied in boxes of
/// `box_rows` by `box_cols`. Boxes lie in shared memory row by row, swizzled by 128 bytes; what lies out of
/// bounds reads as zero and is not written. An error when the device cannot do that: address and stride must be
/// multiples of 16, a box's row at most 128 bytes and a multiple of 16.
Expected<TensorMap> tensor_map(const DriverApi& api, Address address, TensorElement element, int64_t rows, int64_t cols,
                               int64_t stride_bytes, int box_rows, int box_cols);

}  // namespace octalane::cuda
