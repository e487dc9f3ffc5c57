// MXFP4: 32 values of E2M1, kept doubled so that they are integers, under one power-of-two scale (E8M0), kept halved.
// Values: OCP Microscaling Formats (MX) Specification v1.0. Layout: ggml-common.h of ggml, where nibble j of the low
// half comes first, as in Q4_0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/half.h"
#include "formats/blocks.h"
#include "formats/e2m1.h"
#include "formats/families.h"
#include "formats/fit.h"

namespace octalane {
namespace {

constexpr int block_values = 32;

struct BlockMXFP4 {  // 4.25 bits per weight
  uint8_t scale;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

void planes_of_mxfp4(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockMXFP4>(bytes, cols / block_values, [&](const BlockMXFP4& block, int64_t b) {
    split_nibbles(block.nibbles, 16, out.codes + b * block_values, out.codes + b * block_values + 16);
    out.scale[b] = e8m0_half_to_f32(block.scale);
  });
}

/// The code of the E2M1 level (doubled) nearest to a magnitude; of two equally near the smaller.
uint8_t nearest_magnitude(float doubled) {
  constexpr float boundaries[] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  int code = 0;
  for (const float boundary : boundaries) code += doubled > boundary ? 1 : 0;
  return static_cast<uint8_t>(code);
}

BlockMXFP4 block_of_mxfp4(const float* values) {
  const MxFp4 fitted = fit_mxfp4(values);
  BlockMXFP4 block{};
  block.scale = fitted.scale;
  join_nibbles(fitted.codes, fitted.codes + 16, 16, block.nibbles);
  return block;
}

void encode_mxfp4(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<BlockMXFP4>(values, cols, block_values, out, block_of_mxfp4);
}

}  // namespace

float round_to_e2m1(const float* x, int count, uint8_t* codes) {
  float error = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float magnitude = std::fabs(x[i]);
    const uint8_t code = nearest_magnitude(magnitude);
    const float miss = magnitude - static_cast<float>(kDoubledE2m1[code]);
    error += miss * miss;
    codes[i] = static_cast<uint8_t>(code | (std::signbit(x[i]) && code != 0 ? 8 : 0));
  }
  return error;
}

MxFp4 fit_mxfp4(const float* values) {
  constexpr float largest = 0x1.8p127f;  // the last level below infinity
  float x[block_values];
  fit::sanitize(values, block_values, largest, x);
  MxFp4 best;
  const float extremum = std::fabs(fit::signed_extremum(x, block_values));
  if (extremum == 0.0f) return best;
  const int finest = std::max(std::ilogb(extremum) - 3 + 128, 0);
  float least = std::numeric_limits<float>::infinity();
  for (int coarser = 0; coarser < 3; ++coarser) {
    MxFp4 trial;
    const int scale = finest + coarser;                // at most 127 - 3 + 128 + 2 = 254
    const double unit = std::ldexp(1.0, 128 - scale);  // fp64: 2^128 is infinite in fp32
    trial.scale = static_cast<uint8_t>(scale);
    float scaled[block_values];
    for (int i = 0; i < block_values; ++i) scaled[i] = static_cast<float>(x[i] * unit);
    const float error = std::ldexp(round_to_e2m1(scaled, block_values, trial.codes), 2 * coarser);
    if (error >= least) continue;
    least = error;
    best = trial;
  }
  return best;
}

namespace family {

constinit const Format mxfp4{
    .name = "mxfp4",
    .ggml_type = 39,
    .block = block_values,
    .block_bytes = sizeof(BlockMXFP4),
    .spec = {.code = {.map = CodeMap::table, .bits = 4, .table = kDoubledE2m1},
             .scale = {.type = ScaleType::e8m0_half, .group = block_values}},
    .to_planes = planes_of_mxfp4,
    .from_float = encode_mxfp4,
};

}  // namespace family
}  // namespace octalane
