// Encoding: no worse than ggml's own quantizer, the same bytes every time, and unharmed by any input.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/half.h"
#include "formats/rows.h"

namespace octalane {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float largest_float = std::numeric_limits<float>::max();

std::vector<const Format*> encoded_formats() {
  std::vector<const Format*> encoded;
  for (const Format* format : gguf_formats()) {
    if (format->from_float != nullptr && !format->spec.code.is_float()) encoded.push_back(format);
  }
  return encoded;
}

class Encode : public testing::TestWithParam<const Format*> {};

std::vector<std::byte> encode(const Format& format, const std::vector<float>& values) {
  const int64_t cols = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(cols)));
  format.from_float(values.data(), cols, blocks.data());
  return blocks;
}

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

struct Case {
  std::string rows;
  uint64_t seed;
  size_t count;
  double rms, rms_error;  // of the rows, and of ggml on them
};

struct Recorded {
  double spread = 0;
  std::vector<Case> cases;
};

Recorded recorded_cases(std::string_view format) {
  const std::vector<std::byte> text = read_test_file("ggml_errors.json");
  const auto json = nlohmann::json::parse(reinterpret_cast<const char*>(text.data()),
                                          reinterpret_cast<const char*>(text.data()) + text.size());
  Recorded recorded{json["spread"], {}};
  for (const auto& entry : json["cases"]) {
    if (entry["format"] != format) continue;
    recorded.cases.push_back({entry["rows"], entry["seed"], entry["count"], entry["rms"], entry["rms_error"]});
  }
  return recorded;
}

std::vector<float> rows_of(const Case& wanted, double spread) {
  if (wanted.rows == "gauss") return gauss_rows(wanted.seed, wanted.count, spread);
  if (wanted.rows == "laplace") return laplace_rows(wanted.seed, wanted.count, spread);
  const Expected<std::vector<float>> rows = real_rows(wanted.rows, wanted.count);
  EXPECT_TRUE(rows.has_value()) << rows.error().message;
  return rows.value_or(std::vector<float>(wanted.count));
}

/// Rows on which ggml loses nothing leave us this share of their RMS: one rounding to fp32.
constexpr double rounding = 0x1p-24;
double allowed_error(const Case& recorded) { return 1.02 * recorded.rms_error + rounding * recorded.rms; }

void expect_no_worse_than_ggml(const Format& format, const Case& recorded, double spread) {
  const std::vector<float> rows = rows_of(recorded, spread);
  ASSERT_NEAR(rms(rows) / recorded.rms, 1, 1e-9) << recorded.rows << ": not the rows that ggml was given";
  const double error = rms_difference(decode(format, encode(format, rows)), rows);
  EXPECT_LE(error, allowed_error(recorded))
      << recorded.rows << " seed " << recorded.seed << ", ggml " << recorded.rms_error;
  // Kept in the test report (--gtest_output=json:...): the receipt behind docs/formats.md.
  testing::Test::RecordProperty(
      fmt::format("{} seed {}", recorded.rows, recorded.seed),
      fmt::format("relative RMS error {:.6f}, ggml {:.6f}", error / recorded.rms, recorded.rms_error / recorded.rms));
}

TEST_P(Encode, loses_no_more_than_ggml_on_gauss_and_laplace_rows) {
  const Recorded recorded = recorded_cases(GetParam()->name);
  int cases = 0;
  for (const Case& each : recorded.cases) {
    if (each.seed == 0) continue;
    ++cases;
    expect_no_worse_than_ggml(*GetParam(), each, recorded.spread);
  }
  EXPECT_EQ(cases, 4);
}

TEST_P(Encode, loses_no_more_than_ggml_on_rows_of_a_real_model) {
  if (!std::filesystem::exists(real_model_path())) GTEST_SKIP() << "no model at " << real_model_path();
  int cases = 0;
  for (const Case& each : recorded_cases(GetParam()->name).cases) {
    if (each.seed != 0) continue;
    ++cases;
    expect_no_worse_than_ggml(*GetParam(), each, 0);
  }
  EXPECT_EQ(cases, 2);
}

TEST_P(Encode, comparison_with_ggml_catches_wrong_scales_and_swapped_codes) {
  const Format& format = *GetParam();
  const Recorded recorded = recorded_cases(format.name);
  const Case& first = recorded.cases.at(0);
  const std::vector<float> rows = rows_of(first, recorded.spread);
  const std::vector<std::byte> blocks = encode(format, rows);
  const int64_t cols = static_cast<int64_t>(rows.size());
  const auto error_with = [&](auto corrupt) {
    Planes planes(format.spec, 1, cols);
    PlaneRow row = planes.row(0);
    format.to_planes(blocks.data(), cols, row);
    corrupt(row);
    std::vector<float> values(rows.size());
    decode_row(format.spec, row, cols, values.data());
    return rms_difference(values, rows);
  };
  const int64_t scales = cols / (format.spec.scale.nested() ? format.spec.scale.super : format.spec.scale.group);
  EXPECT_LE(error_with([](PlaneRow&) {}), allowed_error(first));
  EXPECT_GT(error_with([&](PlaneRow& row) { std::rotate(row.scale, row.scale + 1, row.scale + scales); }),
            allowed_error(first));
  EXPECT_GT(error_with([&](PlaneRow& row) {
              for (int64_t c = 0; c < cols; c += 2) std::swap(row.codes[c], row.codes[c + 1]);
            }),
            allowed_error(first));
}

/// Values that were decoded once are levels already: encoding them again must find them.
TEST_P(Encode, encoding_decoded_values_again_changes_almost_nothing) {
  const Format& format = *GetParam();
  const std::vector<float> rows = gauss_rows(7, 8192, 0.05);
  const std::vector<float> once = decode(format, encode(format, rows));
  const std::vector<float> twice = decode(format, encode(format, once));
  const double lost = rms_difference(rows, once), lost_again = rms_difference(once, twice);
  EXPECT_LE(lost_again, (format.spec.scale.nested() ? 0.3 : 0.01) * lost);
}

TEST_P(Encode, gives_the_same_bytes_block_by_block) {
  const Format& format = *GetParam();
  const std::vector<float> rows = laplace_rows(9, 2048, 1.0);
  const std::vector<std::byte> whole = encode(format, rows);
  std::vector<std::byte> pieces(whole.size() + 1, std::byte{0x5A});  // one off: blocks need no alignment
  for (int64_t at = 0; at < 2048; at += format.block) {
    format.from_float(rows.data() + at, format.block, pieces.data() + 1 + format.row_bytes(at));
  }
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), pieces.begin() + 1));
  EXPECT_EQ(pieces[0], std::byte{0x5A});
}

TEST_P(Encode, keeps_zeros_and_what_is_too_small) {
  const Format& format = *GetParam();
  for (const float tiny : {0.0f, -0.0f, 1e-45f, 1e-40f, -1e-30f, 1e-20f}) {
    std::vector<float> rows(512, tiny);
    rows[300] = -tiny;
    for (const float value : decode(format, encode(format, rows))) EXPECT_LE(std::fabs(value), 2 * std::fabs(tiny));
  }
}

TEST_P(Encode, survives_any_input) {
  const Format& format = *GetParam();
  const std::vector<std::vector<float>> patterns = {
      {not_a_number},
      {infinity},
      {-infinity},
      {largest_float},
      {-largest_float},
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
      ASSERT_TRUE(i >= 256 || std::fabs(values[i] - 0.25f) < 0.01f) << "a neighbouring block is harmed: " << values[i];
    }
  }
}

TEST_P(Encode, counts_nan_as_zero_and_saturates_infinity) {
  const Format& format = *GetParam();
  const std::vector<float> nans = decode(format, encode(format, std::vector<float>(256, not_a_number)));
  for (const float value : nans) EXPECT_EQ(value, 0.0f);
  std::vector<float> rows(256, 0.5f), zero_instead = rows;
  rows[77] = not_a_number;
  zero_instead[77] = 0;
  EXPECT_EQ(encode(format, rows), encode(format, zero_instead));
  rows[77] = infinity;
  EXPECT_GE(decode(format, encode(format, rows))[77], 65504.0f);
  rows[77] = -infinity;
  EXPECT_LE(decode(format, encode(format, rows))[77], -65504.0f);
}

TEST_P(Encode, holds_groups_of_one_sign_and_of_one_value) {
  const Format& format = *GetParam();
  double worst = 0.8;  // q2_k between zero and its fourth level
  if (format.spec.scale.has_bias && !format.spec.scale.nested()) worst = 0.004;  // half an fp16 step at 10
  if (format.spec.scale.type == ScaleType::e8m0_half) worst = 2;                 // 10 lies midway between 8 and 12
  std::vector<float> rows(256);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = 10.0f + 0.1f * static_cast<float>(i % 32) / 31;
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> signed_rows = rows;
    for (float& value : signed_rows) value *= sign;
    EXPECT_LE(rms_difference(decode(format, encode(format, signed_rows)), signed_rows), worst) << sign;
  }
  const std::vector<float> constant(256, -0.375f);  // 3 * 2^-3: a scale or bias of any format
  EXPECT_LE(rms_difference(decode(format, encode(format, constant)), constant), 0.005);
}

INSTANTIATE_TEST_SUITE_P(Formats, Encode, testing::ValuesIn(encoded_formats()), name_of);

TEST(EncodeTable, every_format_can_be_written) {
  for (const Format* format : gguf_formats()) EXPECT_NE(format->from_float, nullptr) << format->name;
}

class EncodeFloat : public testing::TestWithParam<const char*> {};

TEST_P(EncodeFloat, rounds_once_as_numpy_and_gguf_do) {
  const Format& format = *find_format(GetParam());
  const Golden input = read_golden(*find_format("f32"));
  std::vector<std::byte> wanted = read_test_file(std::string(format.name) + ".encoded");
  ASSERT_EQ(static_cast<int64_t>(wanted.size()), format.row_bytes(static_cast<int64_t>(input.values.size())));
  EXPECT_EQ(first_difference(decode(format, encode(format, input.values)), decode(format, wanted)), -1);
}

INSTANTIATE_TEST_SUITE_P(Formats, EncodeFloat, testing::Values("f32", "f16", "bf16"),
                         [](const auto& format) { return std::string(format.param); });

}  // namespace
}  // namespace octalane
