// Matrices as MLX stores them, with what mlx decodes them to; and rows with what its quantizer loses on them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>

#include "formats/rows.h"

namespace octalane {

/// A matrix in its parts. Moves; the matrix refers to `parts`.
struct MlxGolden {
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  std::vector<std::vector<std::byte>> parts;
  std::vector<float> values;

  StoredMatrix matrix() const {
    StoredMatrix stored{format, rows, cols, {}};
    for (size_t p = 0; p < parts.size(); ++p) stored.parts[p] = parts[p].data();
    return stored;
  }
};

inline nlohmann::json read_mlx_json() {
  const std::vector<std::byte> text = read_test_file("mlx.json");
  const auto* chars = reinterpret_cast<const char*>(text.data());
  return nlohmann::json::parse(chars, chars + text.size());
}

/// The matrices of every format of this build that mlx.json lists.
inline std::vector<MlxGolden> read_mlx_goldens() {
  std::vector<MlxGolden> goldens;
  std::map<std::string, std::vector<std::byte>> files;
  const nlohmann::json json = read_mlx_json();
  for (const auto& entry : json["matrices"]) {
    MlxGolden golden{find_format(entry["format"].get<std::string>()), entry["rows"], entry["cols"], {}, {}};
    if (golden.format == nullptr) continue;
    const std::string name = entry["file"];
    if (!files.contains(name)) files[name] = read_test_file(name);
    const std::byte* at = files[name].data() + entry["offset"].get<size_t>();
    for (const FormatPart& part : golden.format->parts) {
      const int64_t blocks = part.per_matrix ? 1 : golden.rows * golden.cols / golden.format->block;
      golden.parts.emplace_back(at, at + blocks * part.bytes);
      at += blocks * part.bytes;
    }
    golden.values.resize(static_cast<size_t>(golden.rows * golden.cols));
    std::memcpy(golden.values.data(), at, golden.values.size() * sizeof(float));
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

/// Every row of a matrix -> fp32, through the planes. The levels of E2M1 are integers here: zeros have no sign.
inline std::vector<float> decode(const StoredMatrix& stored) {
  std::vector<float> values(static_cast<size_t>(stored.rows * stored.cols));
  Planes planes(stored.format->spec, stored.rows, stored.cols);
  for (int64_t r = 0; r < stored.rows; ++r) {
    stored.to_planes(r, planes.row(r));
    decode_row(stored.format->spec, planes.row(r), stored.cols, values.data() + r * stored.cols);
  }
  if (stored.format->spec.code.map == CodeMap::table) {
    for (float& value : values) value += 0.0f;
  }
  return values;
}

}  // namespace octalane
