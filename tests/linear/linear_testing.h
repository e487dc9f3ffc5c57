// Weights, activations and contexts for the tests of products.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "linear/linear.h"

namespace octalane {

inline std::vector<float> normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

/// Blocks of a format: quantized from normal values where the format can be written.
inline std::vector<std::byte> blocks(const Format& format, int64_t rows, int64_t cols, uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * format.row_bytes(cols)));
  const std::vector<float> values = normal(rows * cols, seed);
  for (int64_t r = 0; r < rows; ++r) {
    format.from_float(values.data() + r * cols, cols, bytes.data() + r * format.row_bytes(cols));
  }
  return bytes;
}

inline Context make_context(int threads, std::string isa = "", std::optional<StagedType> lane = {}) {
  Expected<Context> context = Context::create({threads, std::move(isa), lane});
  EXPECT_TRUE(context) << context.error().message;
  return std::move(*context);
}

}  // namespace octalane
