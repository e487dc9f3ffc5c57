// MLX affine: groups of 32, 64 or 128 codes of 2 to 8 bits under a scale of either sign and a bias, w = scale * code +
// bias. Layout: https://ml-explore.github.io/mlx/build/html/python/_autosummary/mlx.core.quantize.html - a row of codes
// is one bit stream, lowest bit first. MLX keeps codes, scales and biases in tensors of their own; a block here is a
// group's share of each: codes, scale, bias.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "core/half.h"
#include "formats/blocks.h"
#include "formats/families.h"
#include "formats/fit.h"
#include "formats/row_name.h"

namespace octalane {
namespace {

/// How scales and biases are stored.
template <ScaleType type>
struct Stored;

template <>
struct Stored<ScaleType::bf16> {
  using Bits = uint16_t;
  static constexpr Bits infinity = 0x7F80;
  static constexpr float largest = 0x1p126f;  // scale * code stays finite, whatever the fit adds to the range
  static constexpr std::string_view suffix = "";
  static float value(Bits bits) { return bf16_to_f32(bits); }
  static Bits round(float value) { return f32_to_bf16(value); }
};

template <>
struct Stored<ScaleType::f16> {
  using Bits = uint16_t;
  static constexpr Bits infinity = 0x7C00;
  static constexpr float largest = fit::largest;
  static constexpr std::string_view suffix = "-f16";
  static float value(Bits bits) { return f16_to_f32(bits); }
  static Bits round(float value) { return fit::saturated_f16(value); }
};

template <>
struct Stored<ScaleType::f32> {
  using Bits = uint32_t;
  static constexpr Bits infinity = 0x7F800000;
  static constexpr float largest = 0x1p126f;
  static constexpr std::string_view suffix = "-f32";
  static float value(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits round(float value) { return std::bit_cast<uint32_t>(value); }
};

template <int bits, int group, ScaleType type>
struct BlockAffine {
  uint8_t codes[group * bits / 8];
  typename Stored<type>::Bits scale, bias;
};
static_assert(sizeof(BlockAffine<4, 64, ScaleType::bf16>) == 36);  // 4.5 bits per weight
static_assert(sizeof(BlockAffine<3, 32, ScaleType::f32>) == 20);

/// Eight codes of `bits` bits are `bits` bytes.
template <int bits>
void unpack_codes(const uint8_t* packed, int count, uint8_t* codes) {
  for (int i = 0; i < count / 8; ++i) {
    uint64_t stream = 0;
    for (int byte = 0; byte < bits; ++byte) stream |= uint64_t{packed[i * bits + byte]} << (8 * byte);
    for (int j = 0; j < 8; ++j) codes[8 * i + j] = static_cast<uint8_t>(stream >> (bits * j) & ((1u << bits) - 1u));
  }
}

template <int bits>
void pack_codes(const uint8_t* codes, int count, uint8_t* packed) {
  for (int i = 0; i < count / 8; ++i) {
    uint64_t stream = 0;
    for (int j = 0; j < 8; ++j) stream |= uint64_t{codes[8 * i + j]} << (bits * j);
    for (int byte = 0; byte < bits; ++byte) packed[i * bits + byte] = static_cast<uint8_t>(stream >> (8 * byte));
  }
}

template <int bits, int group, ScaleType type>
void planes_of_affine(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  using Block = BlockAffine<bits, group, type>;
  for_each_block<Block>(bytes, cols / group, [&](const Block& block, int64_t b) {
    unpack_codes<bits>(block.codes, group, out.codes + b * group);
    out.scale[b] = Stored<type>::value(block.scale);
    out.bias[b] = Stored<type>::value(block.bias);
  });
}

/// Searches the scale and bias that, as stored, leave the least squared error.
template <int bits, int group, ScaleType type>
class Search {
 public:
  using Bits = typename Stored<type>::Bits;

  /// x in units of 2^exponent, so that no sum overflows or vanishes.
  Search(const float* x, int exponent) : x_(x), exponent_(exponent) {}

  struct Found {
    Bits scale = 0, bias = 0;
    fit::Affine values;  ///< of the two, in the units of x
  };

  Found run() {
    const fit::Affine free = fit::affine_for_levels(x_, group, top, fit::Bias::any);
    try_ends(free.scale, free.bias);
    if constexpr (type != ScaleType::f32) {
      // A coarse bias is rather a little outside of the range: the levels still cover it.
      try_ends(-free.scale, free.bias + free.scale * top);
      for (int round = 0; round < 4 && descend(); ++round) {
      }
    }
    return best_;
  }

 private:
  static constexpr int top = (1 << bits) - 1;
  static constexpr Bits magnitude = static_cast<Bits>(~Bits{0}) >> 1;

  Bits stored(float value) const {
    return Stored<type>::round(static_cast<float>(std::ldexp(double{value}, exponent_)));
  }
  float value(Bits stored) const {
    return static_cast<float>(std::ldexp(double{Stored<type>::value(stored)}, -exponent_));
  }

  /// The same value some steps of its type further from zero; false where the type ends.
  static bool step(Bits bits_of_value, int steps, Bits& out) {
    const int64_t moved = int64_t{bits_of_value & magnitude} + steps;
    if (moved < 0 || moved >= int64_t{Stored<type>::infinity}) return false;
    out = static_cast<Bits>((bits_of_value & ~magnitude) | static_cast<Bits>(moved));
    return true;
  }

  bool attempt(Bits scale, Bits bias) {
    const fit::Affine values{value(scale), value(bias)};
    const float error = fit::rounding_error(x_, group, values, 0, top);
    if (!(error < least_)) return false;
    least_ = error;
    best_ = {scale, bias, values};
    return true;
  }

  /// The bias as stored and one step to either side, each with the scale that suits it.
  void try_ends(float scale, float bias) {
    attempt(stored(scale), stored(bias));
    const float far_end = bias + scale * top;
    for (int steps = -1; steps <= 1; ++steps) {
      Bits moved = 0;
      if (!step(stored(bias), steps, moved)) continue;
      const float reach = (far_end - value(moved)) / top;
      attempt(stored(fit::scale_for_bias(x_, group, {reach, value(moved)}, top)), moved);
    }
  }

  /// One step of scale, bias or both that lowers the error.
  bool descend() {
    const Found from = best_;
    bool better = false;
    for (int i = 0; i < 9; ++i) {
      Bits scale = 0, bias = 0;
      if (i == 4 || !step(from.scale, i % 3 - 1, scale) || !step(from.bias, i / 3 - 1, bias)) continue;
      better |= attempt(scale, bias);
    }
    return better;
  }

  const float* x_;
  int exponent_;
  Found best_;
  float least_ = std::numeric_limits<float>::infinity();
};

template <int bits, int group, ScaleType type>
BlockAffine<bits, group, type> block_of_affine(const float* values) {
  BlockAffine<bits, group, type> block{};
  float x[group];
  fit::sanitize(values, group, Stored<type>::largest, x);
  const float extremum = fit::signed_extremum(x, group);
  if (extremum == 0.0f) return block;
  const int exponent = std::ilogb(extremum);
  const double unit = std::ldexp(1.0, -exponent);  // fp64: 2^149 is infinite in fp32
  for (float& value : x) value = static_cast<float>(value * unit);
  const auto found = Search<bits, group, type>(x, exponent).run();
  block.scale = found.scale;
  block.bias = found.bias;
  uint8_t codes[group];
  fit::codes_for(x, group, found.values, 0, (1 << bits) - 1, codes);
  pack_codes<bits>(codes, group, block.codes);
  return block;
}

template <int bits, int group, ScaleType type>
void encode_affine(const float* values, int64_t cols, std::byte* out) {
  encode_each_block<BlockAffine<bits, group, type>>(values, cols, group, out, block_of_affine<bits, group, type>);
}

constexpr RowName name_of(int bits, int group, std::string_view suffix) {
  RowName name;
  name.add("mlx-affine-");
  name.add(bits);
  name.add("-g");
  name.add(group);
  name.add(suffix);
  return name;
}

template <int bits, int group, ScaleType type>
constexpr RowName affine_name = name_of(bits, group, Stored<type>::suffix);

template <int bits, int group, ScaleType type>
constexpr FormatPart affine_parts[] = {
    {.suffix = "weight", .offset = 0, .bytes = group* bits / 8},
    {.suffix = "scales", .offset = group* bits / 8, .bytes = bytes_of(type)},
    {.suffix = "biases", .offset = group* bits / 8 + bytes_of(type), .bytes = bytes_of(type)}};

template <int bits, int group, ScaleType type>
constexpr Format affine() {
  return {.name = affine_name<bits, group, type>.view(),
          .block = group,
          .block_bytes = sizeof(BlockAffine<bits, group, type>),
          .spec = {.code = {.map = CodeMap::offset, .bits = bits},
                   .scale = {.type = type, .group = group, .has_bias = true}},
          .to_planes = planes_of_affine<bits, group, type>,
          .from_float = encode_affine<bits, group, type>,
          .parts = affine_parts<bits, group, type>};
}

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {32, 64, 128};
constexpr ScaleType kTypes[] = {ScaleType::bf16, ScaleType::f16, ScaleType::f32};

template <size_t... i>
constexpr std::array<Format, sizeof...(i)> affine_rows(std::index_sequence<i...>) {
  return {affine<kBits[i % 6], kGroups[i / 6 % 3], kTypes[i / 18]>()...};
}

}  // namespace

namespace family {

constinit const std::array<Format, 54> mlx_affine = affine_rows(std::make_index_sequence<54>());

}  // namespace family
}  // namespace octalane
