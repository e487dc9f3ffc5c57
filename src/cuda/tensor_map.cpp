#include "cuda/tensor_map.h"

#include <fmt/format.h>

namespace octalane::cuda {
namespace {

constexpr int kMostBox = 256;  // elements of a box along a dimension
constexpr int kSwizzle = 128;  // bytes

}  // namespace

Expected<TensorMap> tensor_map(const DriverApi& api, Address address, TensorElement element, int64_t rows, int64_t cols,
                               int64_t stride_bytes, int box_rows, int box_cols) {
  // CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion and CUtensorMapFloatOOBfill of cuda.h.
  constexpr int kNoInterleave = 0, kSwizzle128B = 3, kPromote256B = 3, kFillZero = 0;
  const int bytes = element == TensorElement::u8 ? 1 : 2;
  if (address % 16 != 0)
    return fail("cuda: tensor map: wanted an address that is a multiple of 16, got {:#x}", address);
  if (rows < 1 || cols < 1 || rows > (int64_t{1} << 32) || cols > (int64_t{1} << 32)) {
    return fail("cuda: tensor map: wanted 1 to 2^32 rows and columns, got {} x {}", rows, cols);
  }
  if (stride_bytes % 16 != 0 || stride_bytes < cols * bytes || stride_bytes >= (int64_t{1} << 40)) {
    return fail("cuda: tensor map: wanted a stride of at least {} bytes that is a multiple of 16, got {}", cols * bytes,
                stride_bytes);
  }
  if (box_rows < 1 || box_rows > kMostBox) {
    return fail("cuda: tensor map: wanted boxes of 1 to {} rows, got {}", kMostBox, box_rows);
  }
  if (box_cols < 1 || box_cols * bytes > kSwizzle || box_cols * bytes % 16 != 0) {
    return fail("cuda: tensor map: wanted boxes whose rows are a multiple of 16 bytes and at most {}, got {} x {}",
                kSwizzle, box_cols, bytes);
  }
  const uint64_t dimensions[2] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
  const uint64_t strides[1] = {static_cast<uint64_t>(stride_bytes)};
  const uint32_t box[2] = {static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows)};
  const uint32_t element_strides[2] = {1, 1};
  TensorMap map{};
  const Result made = api.tensor_map_encode_tiled(
      &map, element, 2, reinterpret_cast<void*>(static_cast<uintptr_t>(address)), dimensions, strides, box,
      element_strides, kNoInterleave, kSwizzle128B, kPromote256B, kFillZero);
  const Status s = check(api, made, fmt::format("cuTensorMapEncodeTiled of {} x {}", rows, cols));
  if (!s) return fail_with(s);
  return map;
}

}  // namespace octalane::cuda
