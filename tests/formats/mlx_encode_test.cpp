// Encoding the formats of MLX: no worse than mlx.core.quantize on the same rows, exact where a group allows it, and
// unharmed by any input.
#include <fmt/core.h>

#include <limits>

#include "core/half.h"
#include "formats/mlx_golden.h"

namespace octalane {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float largest_float = std::numeric_limits<float>::max();

std::vector<const Format*> encoded_formats() {
  std::vector<const Format*> encoded;
  for (const Format* format : formats()) {
    if (format->from_float != nullptr && !format->parts.empty()) encoded.push_back(format);
  }
  return encoded;
}

std::vector<std::byte> encode(const Format& format, const std::vector<float>& values) {
  const auto cols = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(cols)));
  format.from_float(values.data(), cols, blocks.data());
  return blocks;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

bool is_affine(const Format& format) { return format.spec.scale.has_bias; }

/// Values as the type of the scales holds them, which is what MLX is given.
void round_to(ScaleType type, std::vector<float>& values) {
  for (float& value : values) {
    if (type == ScaleType::bf16) value = round_to_bf16(value);
    if (type == ScaleType::f16) value = f16_to_f32(f32_to_f16(value));
  }
}

struct Recorded {
  nlohmann::json json = read_mlx_json();
  std::vector<std::byte> kinds = read_test_file("mlx_rows.f32");

  std::vector<float> rows_of(const nlohmann::json& error) const {
    const std::string rows = error["rows"];
    const size_t count = error["count"];
    if (rows == "gauss") return gauss_rows(error["seed"], count, json["spread"]);
    if (rows == "laplace") return laplace_rows(error["seed"], count, json["spread"]);
    std::vector<float> values(count);
    const auto kind = std::find(json["kinds"].begin(), json["kinds"].end(), rows) - json["kinds"].begin();
    std::memcpy(values.data(), kinds.data() + static_cast<size_t>(kind) * count * sizeof(float), count * sizeof(float));
    return values;
  }
};

const Recorded& recorded() {
  static const Recorded all;
  return all;
}

class MlxEncode : public testing::TestWithParam<const Format*> {
 protected:
  const Format& format = *GetParam();

  /// What mlx lost on gauss, laplace and rows of eleven more kinds, calling visit(error, rows).
  template <class Visit>
  int for_each_recorded(Visit visit) const {
    int count = 0;
    for (const auto& error : recorded().json["errors"]) {
      if (error["format"] != format.name) continue;
      std::vector<float> rows = recorded().rows_of(error);
      if (is_affine(format)) round_to(format.spec.scale.type, rows);
      visit(error, rows);
      ++count;
    }
    return count;
  }
};

/// Rows on which mlx loses nothing leave us this share of their RMS: one rounding to fp32.
double allowed_error(const nlohmann::json& error) {
  return 1.02 * error["rms_error"].get<double>() + 0x1p-24 * error["rms"].get<double>();
}

TEST_P(MlxEncode, loses_no_more_than_mlx) {
  const int count = for_each_recorded([&](const nlohmann::json& mlx, const std::vector<float>& rows) {
    const std::string name = fmt::format("{} seed {}", mlx["rows"].get<std::string>(), mlx["seed"].get<int>());
    const double rms = mlx["rms"];
    ASSERT_NEAR(rms_difference(rows, std::vector<float>(rows.size())), rms, 1e-9 * rms)
        << name << ": not the rows that mlx was given";
    const double error = rms_difference(decode(format, encode(format, rows)), rows);
    EXPECT_LE(error, allowed_error(mlx)) << name << ", mlx " << mlx["rms_error"];
    if (rms == 0) return;
    RecordProperty(
        name, fmt::format("relative RMS error {:.6f}, mlx {:.6f}", error / rms, mlx["rms_error"].get<double>() / rms));
  });
  EXPECT_EQ(count, 15);
}

TEST_P(MlxEncode, comparison_with_mlx_catches_wrong_scales_and_swapped_codes) {
  int caught = 0;
  for_each_recorded([&](const nlohmann::json& mlx, const std::vector<float>& rows) {
    if (mlx["rows"] != "gauss") return;
    const std::vector<std::byte> blocks = encode(format, rows);
    const auto size = static_cast<size_t>(format.block_bytes), codes = static_cast<size_t>(format.parts[0].bytes);
    std::vector<std::byte> shifted = blocks, swapped = blocks;
    for (size_t at = 0; at + size < blocks.size(); at += size) {
      std::copy_n(blocks.begin() + static_cast<int64_t>(at + size + codes), size - codes,
                  shifted.begin() + static_cast<int64_t>(at + codes));
      for (size_t i = at; i < at + codes; ++i) swapped[i] = swapped[i] << 4 | swapped[i] >> 4;
    }
    for (const std::vector<std::byte>& wrong : {shifted, swapped}) {  // whose error may be NaN
      EXPECT_FALSE(rms_difference(decode(format, wrong), rows) <= allowed_error(mlx));
    }
    ++caught;
  });
  EXPECT_EQ(caught, 2);
}

TEST_P(MlxEncode, gives_the_same_bytes_block_by_block) {
  const std::vector<float> rows = laplace_rows(9, 2048, 1.0);
  const std::vector<std::byte> whole = encode(format, rows);
  std::vector<std::byte> pieces(whole.size() + 1);  // one off: blocks need no alignment
  for (int64_t at = 0; at < 2048; at += format.block) {
    format.from_float(rows.data() + at, format.block, pieces.data() + 1 + format.row_bytes(at));
  }
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), pieces.begin() + 1));
}

/// Values that were decoded once are levels already. But a group of 32 rarely reaches both ends of 256 levels, and then
/// its scale and bias cannot be told from its values.
TEST_P(MlxEncode, encoding_decoded_values_again_loses_less_than_the_first_time) {
  const std::vector<float> rows = gauss_rows(7, 8192, 0.05);
  const std::vector<float> once = decode(format, encode(format, rows));
  const std::vector<float> twice = decode(format, encode(format, once));
  EXPECT_LT(rms_difference(once, twice), rms_difference(rows, once));
}

TEST_P(MlxEncode, zeros_and_groups_of_one_stored_value_are_exact) {
  for (const float value : {0.0f, -0.0f, 1.5f, -0.375f, 0.09375f}) {
    for (const float decoded : decode(format, encode(format, std::vector<float>(256, value)))) {
      ASSERT_EQ(decoded, value) << value;
    }
  }
}

TEST_P(MlxEncode, tiny_values_stay_tiny) {
  for (const float tiny : {1e-45f, 1e-40f, -1e-30f, 1e-20f}) {
    std::vector<float> rows(512, tiny);
    rows[300] = -tiny;
    for (const float value : decode(format, encode(format, rows))) EXPECT_LE(std::fabs(value), 2 * std::fabs(tiny));
  }
}

TEST_P(MlxEncode, survives_any_input) {
  const std::vector<std::vector<float>> patterns = {
      {not_a_number},
      {infinity},
      {-infinity},
      {largest_float, -largest_float},
      {infinity, -infinity},
      {1e38f, 1e-45f},
      {1, not_a_number, 2, infinity, -3, -infinity},
      {largest_float, -largest_float, 0},
      {65504, 65520, -70000},
      {1e-7f, 1e7f},
  };
  for (const std::vector<float>& pattern : patterns) {
    std::vector<float> rows(512, 0.25f);
    for (size_t i = 256; i < 512; ++i) rows[i] = pattern[i % pattern.size()];
    const std::vector<float> values = decode(format, encode(format, rows));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(values[i])) << "value " << i << " of pattern " << testing::PrintToString(pattern);
      ASSERT_TRUE(i >= 256 || values[i] == 0.25f) << "a neighbouring block is harmed: " << values[i];
    }
  }
}

TEST_P(MlxEncode, counts_nan_as_zero_and_saturates_infinity) {
  for (const float value : decode(format, encode(format, std::vector<float>(256, not_a_number)))) {
    EXPECT_EQ(value, 0.0f);
  }
  std::vector<float> rows(256, 0.5f), zero_instead = rows;
  rows[77] = not_a_number;
  zero_instead[77] = 0;
  EXPECT_EQ(encode(format, rows), encode(format, zero_instead));
  const float most = format.name == "mlx-nvfp4" ? 2688.0f : 65504.0f;
  rows[77] = infinity;
  EXPECT_GE(decode(format, encode(format, rows))[77], most);
  rows[77] = -infinity;
  EXPECT_LE(decode(format, encode(format, rows))[77], -most);
}

INSTANTIATE_TEST_SUITE_P(Formats, MlxEncode, testing::ValuesIn(encoded_formats()), name_of);

}  // namespace
}  // namespace octalane
