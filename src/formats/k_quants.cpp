// Q2_K Q3_K Q4_K Q5_K Q6_K: 256 values under one fp16 scale (and one fp16 minimum scale), with small integer scales
// per group of 16 or 32. Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"
#include "formats/nested.h"

namespace octalane {
namespace {

constexpr int block_values = 256;

struct BlockQ2K {  // 2.625 bits per weight
  uint8_t scales[16];
  uint8_t crumbs[64];
  uint16_t scale;
  uint16_t min_scale;
};
static_assert(sizeof(BlockQ2K) == 84);

struct BlockQ3K {  // 3.4375 bits per weight
  uint8_t third_bits[32];
  uint8_t crumbs[64];
  uint8_t scales[12];
  uint16_t scale;
};
static_assert(sizeof(BlockQ3K) == 110);

struct BlockQ4K {  // 4.5 bits per weight
  uint16_t scale;
  uint16_t min_scale;
  uint8_t scales[12];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ4K) == 144);

struct BlockQ5K {  // 5.5 bits per weight
  uint16_t scale;
  uint16_t min_scale;
  uint8_t scales[12];
  uint8_t fifth_bits[32];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ5K) == 176);

struct BlockQ6K {  // 6.5625 bits per weight
  uint8_t nibbles[128];
  uint8_t crumbs[64];
  int8_t scales[16];
  uint16_t scale;
};
static_assert(sizeof(BlockQ6K) == 210);

template <class Block>
constexpr bool has_fifth_bits = requires(Block block) {
  block.fifth_bits;
};

/// Two-bit fields: byte l of half n holds values 128 n + 32 j + l at bits 2 j, j < 4.
void split_crumbs(const uint8_t crumbs[64], uint8_t codes[256]) {
  for (int n = 0; n < 2; ++n) {
    for (int j = 0; j < 4; ++j) {
      for (int l = 0; l < 32; ++l) codes[128 * n + 32 * j + l] = (crumbs[32 * n + l] >> (2 * j)) & 3;
    }
  }
}

void join_crumbs(const uint8_t codes[256], uint8_t crumbs[64]) {
  for (int n = 0; n < 2; ++n) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* at = codes + 128 * n + l;
      crumbs[32 * n + l] =
          static_cast<uint8_t>((at[0] & 3) | (at[32] & 3) << 2 | (at[64] & 3) << 4 | (at[96] & 3) << 6);
    }
  }
}

/// Bit g of byte l <- bit `bit` of code 32 g + l; the inverse is add_bits.
void take_bits(const uint8_t codes[256], int bit, uint8_t bits[32]) {
  for (int l = 0; l < 32; ++l) {
    int byte = 0;
    for (int g = 0; g < 8; ++g) byte |= ((codes[32 * g + l] >> bit) & 1) << g;
    bits[l] = static_cast<uint8_t>(byte);
  }
}

void add_bits(const uint8_t bits[32], int bit, uint8_t codes[256]) {
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) codes[32 * g + l] |= static_cast<uint8_t>(((bits[l] >> g) & 1) << bit);
  }
}

/// Q4_K and Q5_K: the 6-bit scales and minimums of 8 groups in 12 bytes. Groups 0..3 lie in the low 6 bits of bytes
/// 0..3 (scale) and 4..7 (minimum); groups 4..7 have their low 4 bits in bytes 8..11 and their high 2 on top of those.
void split_six_bit_pairs(const uint8_t packed[12], int8_t scales[8], int8_t minimums[8]) {
  for (int s = 0; s < 4; ++s) {
    scales[s] = static_cast<int8_t>(packed[s] & 63);
    minimums[s] = static_cast<int8_t>(packed[s + 4] & 63);
    scales[s + 4] = static_cast<int8_t>((packed[s + 8] & 15) | (packed[s] >> 6) << 4);
    minimums[s + 4] = static_cast<int8_t>((packed[s + 8] >> 4) | (packed[s + 4] >> 6) << 4);
  }
}

void join_six_bit_pairs(const int8_t scales[8], const int8_t minimums[8], uint8_t packed[12]) {
  for (int s = 0; s < 4; ++s) {
    packed[s] = static_cast<uint8_t>(scales[s] | (scales[s + 4] >> 4) << 6);
    packed[s + 4] = static_cast<uint8_t>(minimums[s] | (minimums[s + 4] >> 4) << 6);
    packed[s + 8] = static_cast<uint8_t>((scales[s + 4] & 15) | (minimums[s + 4] & 15) << 4);
  }
}

/// Q3_K: 16 scales of 6 bits stored with offset 32; low 4 bits as nibbles of bytes 0..7, high 2 as crumbs of 8..11.
void split_six_bit_scales(const uint8_t packed[12], int8_t scales[16]) {
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
    scales[s] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

void join_six_bit_scales(const int8_t scales[16], uint8_t packed[12]) {
  std::memset(packed, 0, 12);
  for (int s = 0; s < 16; ++s) {
    const int stored = scales[s] + 32;
    packed[s % 8] |= static_cast<uint8_t>((stored & 15) << (s < 8 ? 0 : 4));
    packed[8 + s % 4] |= static_cast<uint8_t>((stored >> 4) << (2 * (s / 4)));
  }
}

void planes_of_q2_k(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockQ2K>(bytes, cols / block_values, [&](const BlockQ2K& block, int64_t b) {
    split_crumbs(block.crumbs, out.codes + b * block_values);
    for (int s = 0; s < 16; ++s) {
      out.sub_scale[16 * b + s] = static_cast<int8_t>(block.scales[s] & 15);
      out.sub_min[16 * b + s] = static_cast<int8_t>(block.scales[s] >> 4);
    }
    out.scale[b] = f16_to_f32(block.scale);
    out.bias[b] = f16_to_f32(block.min_scale);
  });
}

BlockQ2K block_of_q2_k(const float* values) {
  const fit::NestedBlock fitted =
      fit::fit_nested(values, {.group = 16, .low = 0, .high = 3, .sub_low = 0, .sub_high = 15, .has_minimums = true});
  BlockQ2K block;
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<uint8_t>(fitted.sub_scale[s] | fitted.sub_min[s] << 4);
  join_crumbs(fitted.codes, block.crumbs);
  block.scale = fitted.scale;
  block.min_scale = fitted.bias;
  return block;
}

void planes_of_q3_k(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockQ3K>(bytes, cols / block_values, [&](const BlockQ3K& block, int64_t b) {
    uint8_t* codes = out.codes + b * block_values;
    split_crumbs(block.crumbs, codes);
    add_bits(block.third_bits, 2, codes);
    split_six_bit_scales(block.scales, out.sub_scale + 16 * b);
    out.scale[b] = f16_to_f32(block.scale);
  });
}

BlockQ3K block_of_q3_k(const float* values) {
  const fit::NestedBlock fitted = fit::fit_nested(
      values, {.group = 16, .low = -4, .high = 3, .sub_low = -32, .sub_high = 31, .has_minimums = false});
  BlockQ3K block;
  take_bits(fitted.codes, 2, block.third_bits);
  join_crumbs(fitted.codes, block.crumbs);
  join_six_bit_scales(fitted.sub_scale, block.scales);
  block.scale = fitted.scale;
  return block;
}

/// Q4_K and Q5_K: 32 bytes hold groups 2 c (low nibbles) and 2 c + 1 (high); bit s of byte l the fifth bit in group s.
template <class Block>
void planes_of_q45_k(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<Block>(bytes, cols / block_values, [&](const Block& block, int64_t b) {
    uint8_t* codes = out.codes + b * block_values;
    for (int c = 0; c < 4; ++c) split_nibbles(block.nibbles + 32 * c, 32, codes + 64 * c, codes + 64 * c + 32);
    if constexpr (has_fifth_bits<Block>) add_bits(block.fifth_bits, 4, codes);
    split_six_bit_pairs(block.scales, out.sub_scale + 8 * b, out.sub_min + 8 * b);
    out.scale[b] = f16_to_f32(block.scale);
    out.bias[b] = f16_to_f32(block.min_scale);
  });
}

template <class Block>
Block block_of_q45_k(const float* values) {
  constexpr int top = has_fifth_bits<Block> ? 31 : 15;
  const fit::NestedBlock fitted =
      fit::fit_nested(values, {.group = 32, .low = 0, .high = top, .sub_low = 0, .sub_high = 63, .has_minimums = true});
  Block block;
  block.scale = fitted.scale;
  block.min_scale = fitted.bias;
  join_six_bit_pairs(fitted.sub_scale, fitted.sub_min, block.scales);
  if constexpr (has_fifth_bits<Block>) take_bits(fitted.codes, 4, block.fifth_bits);
  for (int c = 0; c < 4; ++c)
    join_nibbles(fitted.codes + 64 * c, fitted.codes + 64 * c + 32, 32, block.nibbles + 32 * c);
  return block;
}

/// Q6_K: of the 128 values of a half the low nibbles of 64 bytes hold the first 64; the top two bits are crumbs.
void planes_of_q6_k(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockQ6K>(bytes, cols / block_values, [&](const BlockQ6K& block, int64_t b) {
    uint8_t* codes = out.codes + b * block_values;
    uint8_t low[block_values];
    for (int n = 0; n < 2; ++n) split_nibbles(block.nibbles + 64 * n, 64, low + 128 * n, low + 128 * n + 64);
    split_crumbs(block.crumbs, codes);
    for (int i = 0; i < block_values; ++i) codes[i] = static_cast<uint8_t>(codes[i] << 4 | low[i]);
    std::memcpy(out.sub_scale + 16 * b, block.scales, sizeof block.scales);
    out.scale[b] = f16_to_f32(block.scale);
  });
}

BlockQ6K block_of_q6_k(const float* values) {
  const fit::NestedBlock fitted = fit::fit_nested(
      values, {.group = 16, .low = -32, .high = 31, .sub_low = -128, .sub_high = 127, .has_minimums = false});
  BlockQ6K block;
  uint8_t high[block_values];
  for (int i = 0; i < block_values; ++i) high[i] = fitted.codes[i] >> 4;
  join_crumbs(high, block.crumbs);
  for (int n = 0; n < 2; ++n) {
    join_nibbles(fitted.codes + 128 * n, fitted.codes + 128 * n + 64, 64, block.nibbles + 64 * n);
  }
  std::memcpy(block.scales, fitted.sub_scale, sizeof block.scales);
  block.scale = fitted.scale;
  return block;
}

template <class Block, Block (*block_of)(const float*)>
void encode(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<Block>(values, cols, block_values, out, block_of);
}

constexpr WeightSpec nested_spec(uint8_t bits, int16_t zero, int16_t group, bool has_bias) {
  return {.code = {.map = CodeMap::offset, .bits = bits, .zero = zero},
          .scale = {.type = ScaleType::f16, .group = group, .super = block_values, .has_bias = has_bias}};
}

}  // namespace

namespace family {

constinit const Format q2_k{.name = "q2_k",
                            .ggml_type = 10,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ2K),
                            .spec = nested_spec(2, 0, 16, true),
                            .to_planes = planes_of_q2_k,
                            .from_float = encode<BlockQ2K, block_of_q2_k>};

constinit const Format q3_k{.name = "q3_k",
                            .ggml_type = 11,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ3K),
                            .spec = nested_spec(3, 4, 16, false),
                            .to_planes = planes_of_q3_k,
                            .from_float = encode<BlockQ3K, block_of_q3_k>};

constinit const Format q4_k{.name = "q4_k",
                            .ggml_type = 12,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ4K),
                            .spec = nested_spec(4, 0, 32, true),
                            .to_planes = planes_of_q45_k<BlockQ4K>,
                            .from_float = encode<BlockQ4K, block_of_q45_k<BlockQ4K>>};

constinit const Format q5_k{.name = "q5_k",
                            .ggml_type = 13,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ5K),
                            .spec = nested_spec(5, 0, 32, true),
                            .to_planes = planes_of_q45_k<BlockQ5K>,
                            .from_float = encode<BlockQ5K, block_of_q45_k<BlockQ5K>>};

constinit const Format q6_k{.name = "q6_k",
                            .ggml_type = 14,
                            .block = block_values,
                            .block_bytes = sizeof(BlockQ6K),
                            .spec = nested_spec(6, 32, 16, false),
                            .to_planes = planes_of_q6_k,
                            .from_float = encode<BlockQ6K, block_of_q6_k>};

}  // namespace family
}  // namespace octalane
