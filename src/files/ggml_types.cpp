#include "files/ggml_types.h"

#include <algorithm>
#include <array>
#include <limits>

namespace octalane {
namespace {

constexpr std::array kTypes = std::to_array<GgmlType>({
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},
    {10, "q2_k", 256, 84},    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
    {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
    {40, "nvfp4", 64, 36},    {41, "q1_0", 128, 18},    {42, "q2_0", 64, 18},
});
static_assert(std::is_sorted(kTypes.begin(), kTypes.end(), [](auto& a, auto& b) { return a.id < b.id; }));

/// Numbers that ggml gave up; nobody reads these files any more, but a user may meet one.
const char* withdrawn_name(uint32_t id) {
  switch (id) {
    case 4: return "q4_2";
    case 5: return "q4_3";
    case 31: return "q4_0_4_4";
    case 32: return "q4_0_4_8";
    case 33: return "q4_0_8_8";
    case 36: return "iq4_nl_4_4";
    case 37: return "iq4_nl_4_8";
    case 38: return "iq4_nl_8_8";
    default: return nullptr;
  }
}

}  // namespace

std::span<const GgmlType> ggml_types() { return kTypes; }

const GgmlType* find_ggml_type(uint32_t id) {
  const auto at =
      std::lower_bound(kTypes.begin(), kTypes.end(), id, [](auto& type, uint32_t x) { return type.id < x; });
  return at != kTypes.end() && at->id == id ? &*at : nullptr;
}

std::string ggml_type_name(uint32_t id) {
  if (const GgmlType* type = find_ggml_type(id)) return type->name;
  if (const char* name = withdrawn_name(id)) return fmt::format("type {} ({}, withdrawn from ggml)", id, name);
  return fmt::format("type {}", id);
}

Expected<uint64_t> ggml_tensor_bytes(const GgmlType& type, std::span<const int64_t> shape) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (shape.size() > kMaxTensorDimensions)
    return fail("wanted at most {} dimensions, got {}", kMaxTensorDimensions, shape.size());
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return fail("dimension {} is negative", dim);
    empty |= dim == 0;
    if (dim > kMost / product) return fail("the product of its dimensions overflows");
    product *= std::max<int64_t>(dim, 1);
  }
  const int64_t cols = shape.empty() ? 1 : shape[0];
  if (cols % type.block != 0)
    return fail("{} columns is not a multiple of {}, the block of {}", cols, type.block, type.name);
  if (empty) return 0;
  const int64_t blocks = product / type.block;
  if (blocks > kMost / type.block_bytes) return fail("its size in bytes overflows");
  return static_cast<uint64_t>(blocks * type.block_bytes);
}

}  // namespace octalane
