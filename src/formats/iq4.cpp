// IQ4_NL, IQ4_XS: 4-bit codes into a fixed table of 16 unevenly spaced levels.
// Layouts and table: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"
#include "formats/fit.h"

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

/// The code of the level nearest to a value, by floor(2 * value) + 256: midway between two levels lies a half-integer.
constexpr std::array<uint8_t, 512> make_nearest_codes() {
  std::array<uint8_t, 512> codes{};
  size_t code = 0;
  for (int i = 0; i < 512; ++i) {
    while (code < 15 && i - 256 >= levels[code] + levels[code + 1]) ++code;
    codes[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
  }
  return codes;
}

constexpr std::array<uint8_t, 512> nearest_codes = make_nearest_codes();

uint8_t nearest_code(float value) {
  const float shifted = std::min(std::max(2.0f * value, -255.0f), 255.0f) + 256.0f;
  return nearest_codes[static_cast<size_t>(static_cast<int>(shifted))];
}

/// Rounds 32 values to the table under a scale; returns the squared error. codes may be null.
float round_to_table(const float* x, float scale, uint8_t* codes) {
  const float inverse = std::fabs(scale) < fit::smallest ? 0.0f : 1.0f / scale;
  float error = 0;
  for (int i = 0; i < nl_values; ++i) {
    const uint8_t code = nearest_code(x[i] * inverse);
    const float miss = x[i] - scale * static_cast<float>(levels[code]);
    error += miss * miss;
    if (codes != nullptr) codes[i] = code;
  }
  return error;
}

/// The least-squares scale of 32 values over trials that put the value of largest magnitude at or around either end.
float scale_for_table(const float* x) {
  const float extremum = fit::signed_extremum(x, nl_values);
  if (std::fabs(extremum) < fit::smallest) return 0.0f;
  constexpr float trials[] = {-127, -151, -145, -139, -133, -121, -115, -104, 113, 137, 129, 121, 105, 97, 89};
  float best_scale = 0.0f, best_gain = -1.0f;
  for (const float trial : trials) {
    const float inverse = trial / extremum;
    float value_level = 0, level2 = 0;
    for (int i = 0; i < nl_values; ++i) {
      const float level = levels[nearest_code(x[i] * inverse)];
      value_level += x[i] * level;
      level2 += level * level;
    }
    const float gain = value_level * value_level / level2;
    if (gain > best_gain) {
      best_gain = gain;
      best_scale = value_level / level2;
    }
  }
  return best_scale;
}

BlockIQ4NL block_of_iq4_nl(const float* values) {
  float x[nl_values];
  fit::sanitize(values, nl_values, fit::largest, x);
  BlockIQ4NL block;
  block.scale = fit::saturated_f16(scale_for_table(x));
  uint8_t codes[nl_values];
  round_to_table(x, f16_to_f32(block.scale), codes);
  join_nibbles(codes, codes + 16, 16, block.nibbles);
  return block;
}

/// The integer scale of one group, near the one that its own fit asks for, that loses least.
int choose_integer(const float* x, float wanted, float unit) {
  if (std::fabs(unit) < fit::smallest) return 0;
  const int middle = static_cast<int>(fit::round_even(std::min(std::max(wanted / unit, -32.0f), 31.0f)));
  int best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int scale = std::max(middle - 1, -32); scale <= std::min(middle + 1, 31); ++scale) {
    const float error = round_to_table(x, unit * static_cast<float>(scale), nullptr);
    if (error >= least) continue;
    least = error;
    best = scale;
  }
  return best;
}

BlockIQ4XS block_of_iq4_xs(const float* values) {
  float x[xs_values];
  fit::sanitize(values, xs_values, fit::largest, x);
  float wanted[8];
  for (int s = 0; s < 8; ++s) wanted[s] = scale_for_table(x + 32 * s);
  BlockIQ4XS block{};
  block.scale = fit::saturated_f16(fit::signed_extremum(wanted, 8) / -32.0f);
  const float unit = f16_to_f32(block.scale);
  for (int s = 0; s < 8; ++s) {
    const int scale = choose_integer(x + 32 * s, wanted[s], unit);
    uint8_t codes[32];
    round_to_table(x + 32 * s, unit * static_cast<float>(scale), codes);
    join_nibbles(codes, codes + 16, 16, block.nibbles + 16 * s);
    block.scales_low[s / 2] |= static_cast<uint8_t>(((scale + 32) & 15) << (4 * (s % 2)));
    block.scales_high |= static_cast<uint16_t>(((scale + 32) >> 4) << (2 * s));
  }
  return block;
}

void encode_iq4_nl(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<BlockIQ4NL>(values, cols, nl_values, out, block_of_iq4_nl);
}

void encode_iq4_xs(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<BlockIQ4XS>(values, cols, xs_values, out, block_of_iq4_xs);
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
    .from_float = encode_iq4_nl,
};

constinit const Format iq4_xs{
    .name = "iq4_xs",
    .ggml_type = 23,
    .block = xs_values,
    .block_bytes = sizeof(BlockIQ4XS),
    .spec = {.code = code, .scale = {.type = ScaleType::f16, .group = 32, .super = xs_values}},
    .to_planes = planes_of_iq4_xs,
    .from_float = encode_iq4_xs,
};

}  // namespace family
}  // namespace octalane
