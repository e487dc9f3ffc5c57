// MXFP4: 32 values of E2M1, kept doubled so that they are integers, under one power-of-two scale (E8M0), kept halved.
// Values: OCP Microscaling Formats (MX) Specification v1.0. Layout: ggml-common.h of ggml, where nibble j of the low
// half comes first, as in Q4_0.
#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"

namespace octalane {
namespace {

constexpr int block_values = 32;

struct BlockMXFP4 {  // 4.25 bits per weight
  uint8_t scale;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

constexpr std::array<int8_t, 16> doubled_e2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void planes_of_mxfp4(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockMXFP4>(bytes, cols / block_values, [&](const BlockMXFP4& block, int64_t b) {
    split_nibbles(block.nibbles, 16, out.codes + b * block_values, out.codes + b * block_values + 16);
    out.scale[b] = e8m0_half_to_f32(block.scale);
  });
}

}  // namespace

namespace family {

constinit const Format mxfp4{
    .name = "mxfp4",
    .ggml_type = 39,
    .block = block_values,
    .block_bytes = sizeof(BlockMXFP4),
    .spec = {.code = {.map = CodeMap::table, .bits = 4, .table = doubled_e2m1},
             .scale = {.type = ScaleType::e8m0_half, .group = block_values}},
    .to_planes = planes_of_mxfp4,
};

}  // namespace family
}  // namespace octalane
