// The golden blocks of a format and the comparison of decoded values with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "core/planes.h"
#include "formats/format.h"

namespace octalane {

/// How GoogleTest names the parameter of a test.
inline void PrintTo(const Format* format, std::ostream* out) { *out << format->name; }

/// GoogleTest takes letters, digits and underscores.
inline std::string name_of(const testing::TestParamInfo<const Format*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// The formats of GGUF files, whose golden blocks come from `gguf` and whose errors are ggml's.
inline std::vector<const Format*> gguf_formats() {
  std::vector<const Format*> found;
  for (const Format* format : formats()) {
    if (format->ggml_type >= 0) found.push_back(format);
  }
  return found;
}

inline std::vector<std::byte> read_test_file(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(OCTALANE_TEST_DATA) / "formats" / "golden" / name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(chars.size());
  if (!chars.empty()) std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

struct Golden {
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

inline Golden read_golden(const Format& format) {
  Golden golden{read_test_file(std::string(format.name) + ".blocks"), {}};
  const std::vector<std::byte> values = read_test_file(std::string(format.name) + ".values");
  golden.values.resize(values.size() / sizeof(float));
  if (!values.empty()) std::memcpy(golden.values.data(), values.data(), values.size());
  return golden;
}

/// One row of blocks -> fp32, through the planes.
inline std::vector<float> decode(const Format& format, const std::vector<std::byte>& blocks) {
  const int64_t cols = static_cast<int64_t>(blocks.size()) / format.block_bytes * format.block;
  Planes planes(format.spec, 1, cols);
  format.to_planes(blocks.data(), cols, planes.row(0));
  std::vector<float> values(static_cast<size_t>(cols));
  decode_row(format.spec, planes.row(0), cols, values.data());
  return values;
}

/// Bit for bit; one NaN is as good as another.
inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// The index of the first value that differs, or -1.
inline int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace octalane
