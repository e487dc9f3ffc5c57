// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 values under one fp16 scale, and an fp16 minimum in the _1 kinds.
// Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include <cmath>

#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"
#include "formats/fit.h"

namespace octalane {
namespace {

constexpr int block_values = 32;

struct BlockQ4_0 {  // 4.5 bits per weight
  uint16_t scale;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // 5 bits per weight
  uint16_t scale;
  uint16_t minimum;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // 5.5 bits per weight
  uint16_t scale;
  uint8_t fifth_bits[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // 6 bits per weight
  uint16_t scale;
  uint16_t minimum;
  uint8_t fifth_bits[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // 8.5 bits per weight
  uint16_t scale;
  int8_t codes[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

template <class Block>
constexpr bool has_minimum = requires(Block block) {
  block.minimum;
};
template <class Block>
constexpr bool has_fifth_bits = requires(Block block) {
  block.fifth_bits;
};

/// Q4_x and Q5_x: value j is the low nibble of byte j, value j + 16 its high nibble, bit j the fifth bit of code j.
template <class Block>
void planes_of_nibbles(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<Block>(bytes, cols / block_values, [&](const Block& block, int64_t b) {
    uint8_t* codes = out.codes + b * block_values;
    split_nibbles(block.nibbles, 16, codes, codes + 16);
    if constexpr (has_fifth_bits<Block>) {
      for (int j = 0; j < block_values; ++j) codes[j] |= ((block.fifth_bits[j / 8] >> (j % 8)) & 1) << 4;
    }
    out.scale[b] = f16_to_f32(block.scale);
    if constexpr (has_minimum<Block>) out.bias[b] = f16_to_f32(block.minimum);
  });
}

void planes_of_q8_0(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockQ8_0>(bytes, cols / block_values, [&](const BlockQ8_0& block, int64_t b) {
    uint8_t* codes = out.codes + b * block_values;
    for (int j = 0; j < block_values; ++j) codes[j] = static_cast<uint8_t>(block.codes[j] + 128);
    out.scale[b] = f16_to_f32(block.scale);
  });
}

template <class Block>
Block block_of_nibbles(const float* values) {
  constexpr int levels = has_fifth_bits<Block> ? 32 : 16;
  constexpr int low = has_minimum<Block> ? 0 : -levels / 2;
  float x[block_values];
  fit::sanitize(values, block_values, fit::largest, x);
  Block block{};
  fit::Affine stored;
  if constexpr (has_minimum<Block>) {
    const fit::Affine best = fit::affine_for_levels(x, block_values, levels - 1, fit::Bias::any);
    block.scale = fit::saturated_f16(best.scale);
    block.minimum = fit::saturated_f16(best.bias);
    stored.bias = f16_to_f32(block.minimum);
  } else {
    block.scale = fit::saturated_f16(fit::scale_for_levels(x, block_values, low, low + levels - 1));
  }
  stored.scale = f16_to_f32(block.scale);
  uint8_t codes[block_values];
  fit::codes_for(x, block_values, stored, low, low + levels - 1, codes);
  if constexpr (has_fifth_bits<Block>) {
    for (int j = 0; j < block_values; ++j) block.fifth_bits[j / 8] |= static_cast<uint8_t>((codes[j] >> 4) << (j % 8));
  }
  join_nibbles(codes, codes + 16, 16, block.nibbles);
  return block;
}

template <class Block>
void encode_nibbles(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<Block>(values, cols, block_values, out, block_of_nibbles<Block>);
}

/// Level -128 stays unused, as in ggml: a symmetric range lets a kernel negate codes.
BlockQ8_0 block_of_q8_0(const float* values) {
  constexpr int top = 127;
  float x[block_values];
  fit::sanitize(values, block_values, fit::largest, x);
  BlockQ8_0 block;
  block.scale = fit::saturated_f16(std::fabs(fit::signed_extremum(x, block_values)) / top);
  uint8_t codes[block_values];
  fit::codes_for(x, block_values, {f16_to_f32(block.scale), 0.0f}, -top, top, codes);
  for (int j = 0; j < block_values; ++j) block.codes[j] = static_cast<int8_t>(codes[j] - top);
  return block;
}

void encode_q8_0(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<BlockQ8_0>(values, cols, block_values, out, block_of_q8_0);
}

constexpr WeightSpec offset_spec(uint8_t bits, int16_t zero, bool has_bias) {
  return {.code = {.map = CodeMap::offset, .bits = bits, .zero = zero},
          .scale = {.type = ScaleType::f16, .group = block_values, .has_bias = has_bias}};
}

}  // namespace

namespace family {

constinit const Format q4_0{.name = "q4_0",
                            .ggml_type = 2,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ4_0),
                            .spec = offset_spec(4, 8, false),
                            .to_planes = planes_of_nibbles<BlockQ4_0>,
                            .from_float = encode_nibbles<BlockQ4_0>};

constinit const Format q4_1{.name = "q4_1",
                            .ggml_type = 3,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ4_1),
                            .spec = offset_spec(4, 0, true),
                            .to_planes = planes_of_nibbles<BlockQ4_1>,
                            .from_float = encode_nibbles<BlockQ4_1>};

constinit const Format q5_0{.name = "q5_0",
                            .ggml_type = 6,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ5_0),
                            .spec = offset_spec(5, 16, false),
                            .to_planes = planes_of_nibbles<BlockQ5_0>,
                            .from_float = encode_nibbles<BlockQ5_0>};

constinit const Format q5_1{.name = "q5_1",
                            .ggml_type = 7,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ5_1),
                            .spec = offset_spec(5, 0, true),
                            .to_planes = planes_of_nibbles<BlockQ5_1>,
                            .from_float = encode_nibbles<BlockQ5_1>};

constinit const Format q8_0{.name = "q8_0",
                            .ggml_type = 8,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ8_0),
                            .spec = offset_spec(8, 128, false),
                            .to_planes = planes_of_q8_0,
                            .from_float = encode_q8_0};

}  // namespace family
}  // namespace octalane
