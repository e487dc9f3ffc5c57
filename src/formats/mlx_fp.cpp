// MLX's modes mxfp4, mxfp8 and nvfp4: small floats under a one-byte scale, w = scale * element, without a bias.
// Layout: https://ml-explore.github.io/mlx/build/html/python/_autosummary/mlx.core.quantize.html - elements follow each
// other, of two in a byte the low nibble first; scales have a tensor of their own. Elements and scales of mx* are those
// of the OCP Microscaling Formats (MX) Specification v1.0; scales of nvfp4 are E4M3.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/half.h"
#include "formats/blocks.h"
#include "formats/e2m1.h"
#include "formats/families.h"
#include "formats/fit.h"

namespace octalane {
namespace {

constexpr int mx_values = 32, nv_values = 16;

struct BlockMxFp4 {  // 4.25 bits per weight
  uint8_t nibbles[16];
  uint8_t scale;
};
struct BlockMxFp8 {  // 8.25 bits per weight
  uint8_t codes[32];
  uint8_t scale;
};
struct BlockNvFp4 {  // 4.5 bits per weight
  uint8_t nibbles[8];
  uint8_t scale;
};
struct BlockNvFp4Scaled {  // 4.5 bits per weight and one fp32 for the matrix
  BlockNvFp4 block;
  uint8_t factor[4];
};
static_assert(sizeof(BlockMxFp4) == 17 && sizeof(BlockMxFp8) == 33);
static_assert(sizeof(BlockNvFp4) == 9 && sizeof(BlockNvFp4Scaled) == 13);

void unpack_nibbles(const uint8_t* bytes, int count, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = static_cast<uint8_t>(bytes[i] >> 4);
  }
}

void pack_nibbles(const uint8_t* codes, int count, uint8_t* bytes) {
  for (int i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
}

void planes_of_mxfp4(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockMxFp4>(bytes, cols / mx_values, [&](const BlockMxFp4& block, int64_t b) {
    unpack_nibbles(block.nibbles, 16, out.codes + b * mx_values);
    out.scale[b] = 0.5f * e8m0_to_f32(block.scale);  // exact: 2^-128 is a subnormal, NaN stays NaN
  });
}

BlockMxFp4 block_of_mxfp4(const float* values) {
  const MxFp4 fitted = fit_mxfp4(values);
  BlockMxFp4 block{};
  block.scale = fitted.scale;
  pack_nibbles(fitted.codes, 16, block.nibbles);
  return block;
}

void planes_of_mxfp8(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockMxFp8>(bytes, cols / mx_values, [&](const BlockMxFp8& block, int64_t b) {
    std::memcpy(out.codes + b * mx_values, block.codes, mx_values);
    out.scale[b] = e8m0_to_f32(block.scale);
  });
}

/// The smallest power of two under which nothing saturates, or half of it if that loses less.
BlockMxFp8 block_of_mxfp8(const float* values) {
  constexpr float largest = 0x1.Ep127f;  // the last E4M3 mantissa below infinity
  float x[mx_values];
  fit::sanitize(values, mx_values, largest, x);
  BlockMxFp8 best{};
  const float extremum = std::fabs(fit::signed_extremum(x, mx_values));
  if (extremum == 0.0f) return best;
  const int octave = std::ilogb(extremum);  // 448 is 1.75 * 2^8
  const int up = octave - 8 + (std::ldexp(double{extremum}, -octave) > 1.75 ? 1 : 0);
  double least = std::numeric_limits<double>::infinity();
  for (const int exponent : {up, up - 1}) {
    BlockMxFp8 block{};
    block.scale = static_cast<uint8_t>(std::max(exponent, -127) + 127);
    const double unit = std::ldexp(1.0, block.scale - 127);
    double error = 0;
    for (int i = 0; i < mx_values; ++i) {
      block.codes[i] = f32_to_e4m3(static_cast<float>(x[i] / unit));
      const double miss = x[i] / unit - double{e4m3_to_f32(block.codes[i])};
      error += miss * miss * (unit * unit);
    }
    if (error >= least) continue;
    least = error;
    best = block;
  }
  return best;
}

void planes_of_nvfp4(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockNvFp4>(bytes, cols / nv_values, [&](const BlockNvFp4& block, int64_t b) {
    unpack_nibbles(block.nibbles, 8, out.codes + b * nv_values);
    out.scale[b] = 0.5f * e4m3_to_f32(block.scale);
  });
}

/// The factor of all scales of the matrix is its largest magnitude over that of codes times scales, 6 * 448 = 2688.
/// Halving is exact where the scale is at least 2^-126, and so are products with the doubled levels.
void planes_of_nvfp4_scaled(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  for_each_block<BlockNvFp4Scaled>(bytes, cols / nv_values, [&](const BlockNvFp4Scaled& block, int64_t b) {
    float factor = 0;
    std::memcpy(&factor, block.factor, sizeof factor);
    unpack_nibbles(block.block.nibbles, 8, out.codes + b * nv_values);
    out.scale[b] = 0.5f * (e4m3_to_f32(block.block.scale) * factor);
  });
}

/// The E4M3 scale of least squared error among those that put the largest magnitude at 6, at 4 or between, and zero.
BlockNvFp4 block_of_nvfp4(const float* values) {
  float x[nv_values];
  fit::sanitize(values, nv_values, 2688.0f, x);
  BlockNvFp4 best{};
  const float extremum = std::fabs(fit::signed_extremum(x, nv_values));
  float least = 0.0f;  // of the zero block
  for (const float value : x) least += value * value;
  const int first = std::max(f32_to_e4m3(extremum / 6) - 1, 1), last = std::min(f32_to_e4m3(extremum / 4) + 1, 0x7E);
  for (int scale = first; scale <= last; ++scale) {
    const float half = 0.5f * e4m3_to_f32(static_cast<uint8_t>(scale));
    float scaled[nv_values];
    for (int i = 0; i < nv_values; ++i) scaled[i] = x[i] / half;
    uint8_t codes[nv_values];
    const float error = round_to_e2m1(scaled, nv_values, codes) * half * half;
    if (error >= least) continue;
    least = error;
    best.scale = static_cast<uint8_t>(scale);
    pack_nibbles(codes, 8, best.nibbles);
  }
  return best;
}

template <class Block, int values, Block (*encode)(const float*)>
void encode_fp(const float* in, int64_t cols, std::byte* out) {
  encode_each_block<Block>(in, cols, values, out, encode);
}

constexpr FormatPart mxfp4_parts[] = {{.suffix = "weight", .offset = 0, .bytes = 16},
                                      {.suffix = "scales", .offset = 16, .bytes = 1}};
constexpr FormatPart mxfp8_parts[] = {{.suffix = "weight", .offset = 0, .bytes = 32},
                                      {.suffix = "scales", .offset = 32, .bytes = 1}};
constexpr FormatPart nvfp4_parts[] = {{.suffix = "weight", .offset = 0, .bytes = 8},
                                      {.suffix = "scales", .offset = 8, .bytes = 1},
                                      {.suffix = "weight_scale_2", .offset = 9, .bytes = 4, .per_matrix = true}};

constexpr CodeSpec e2m1{.map = CodeMap::table, .bits = 4, .table = kDoubledE2m1};

}  // namespace

namespace family {

// The scales of mx* and nvfp4, halved, are exact in bfloat16; e8m0_half has no NaN, which a scale byte of 255 is.
constinit const Format mlx_mxfp4{
    .name = "mlx-mxfp4",
    .block = mx_values,
    .block_bytes = sizeof(BlockMxFp4),
    .spec = {.code = e2m1, .scale = {.type = ScaleType::bf16, .group = mx_values, .powers_of_two = true}},
    .to_planes = planes_of_mxfp4,
    .from_float = encode_fp<BlockMxFp4, mx_values, block_of_mxfp4>,
    .parts = mxfp4_parts,
};

constinit const Format mlx_mxfp8{
    .name = "mlx-mxfp8",
    .block = mx_values,
    .block_bytes = sizeof(BlockMxFp8),
    .spec = {.code = {.map = CodeMap::e4m3, .bits = 8}, .scale = {.type = ScaleType::e8m0, .group = mx_values}},
    .to_planes = planes_of_mxfp8,
    .from_float = encode_fp<BlockMxFp8, mx_values, block_of_mxfp8>,
    .parts = mxfp8_parts,
};

constinit const Format mlx_nvfp4{
    .name = "mlx-nvfp4",
    .block = nv_values,
    .block_bytes = sizeof(BlockNvFp4),
    .spec = {.code = e2m1, .scale = {.type = ScaleType::bf16, .group = nv_values}},
    .to_planes = planes_of_nvfp4,
    .from_float = encode_fp<BlockNvFp4, nv_values, block_of_nvfp4>,
    .parts = {nvfp4_parts, 2},
};

// Read only: the scale of the matrix would have to be known before its first row is written.
constinit const Format mlx_nvfp4_scaled{
    .name = "mlx-nvfp4-scaled",
    .block = nv_values,
    .block_bytes = sizeof(BlockNvFp4Scaled),
    .spec = {.code = e2m1, .scale = {.type = ScaleType::f32, .group = nv_values}},
    .to_planes = planes_of_nvfp4_scaled,
    .parts = nvfp4_parts,
};

}  // namespace family
}  // namespace octalane
