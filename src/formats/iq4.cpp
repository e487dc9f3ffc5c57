// IQ4_NL, IQ4_XS: 4-bit codes into a fixed table of 16 unevenly spaced levels.
// Layouts and table: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"

namespace octalane {
namespace {

constexpr std::array<int8_t, 16> levels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

constexpr int nl_values = 32;
struct BlockIQ4NL {  // 4.5 bits per weight
  uint16_t scale;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockIQ4NL) == 18);

constexpr int xs_values = 256;
struct BlockIQ4XS {  // 4.25 bits per weight
  uint16_t scale;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockIQ4XS) == 136);

void planes_of_iq4_nl(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockIQ4NL>(bytes, cols / nl_values, [&](const BlockIQ4NL& block, int64_t b) {
    split_nibbles(block.nibbles, 16, out.codes + b * nl_values, out.codes + b * nl_values + 16);
    out.scale[b] = f16_to_f32(block.scale);
  });
}

void planes_of_iq4_xs(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockIQ4XS>(bytes, cols / xs_values, [&](const BlockIQ4XS& block, int64_t b) {
    for (int s = 0; s < 8; ++s) {
      uint8_t* codes = out.codes + b * xs_values + 32 * s;
      split_nibbles(block.nibbles + 16 * s, 16, codes, codes + 16);
      const int low = (block.scales_low[s / 2] >> (4 * (s % 2))) & 15;
      const int high = (block.scales_high >> (2 * s)) & 3;
      out.sub_scale[8 * b + s] = static_cast<int8_t>((low | high << 4) - 32);
    }
    out.scale[b] = f16_to_f32(block.scale);
  });
}

constexpr CodeSpec code{.map = CodeMap::table, .bits = 4, .table = levels};

}  // namespace

namespace family {

constinit const Format iq4_nl{
    .name = "iq4_nl",
    .ggml_type = 20,
    .block = nl_values,
    .block_bytes = sizeof(BlockIQ4NL),
    .spec = {.code = code, .scale = {.type = ScaleType::f16, .group = nl_values}},
    .to_planes = planes_of_iq4_nl,
};

constinit const Format iq4_xs{
    .name = "iq4_xs",
    .ggml_type = 23,
    .block = xs_values,
    .block_bytes = sizeof(BlockIQ4XS),
    .spec = {.code = code, .scale = {.type = ScaleType::f16, .group = 32, .super = xs_values}},
    .to_planes = planes_of_iq4_xs,
};

}  // namespace family
}  // namespace octalane
