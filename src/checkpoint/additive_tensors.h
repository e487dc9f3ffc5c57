// The tensors of layers with additive codebooks, and what config.json says of them: in folders of CodeGEMM under
// "codegemm", in those of AQLM under "quantization_config".
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.h"
#include "files/safetensors.h"
#include "formats/format.h"

namespace octalane {

struct TensorHeader {
  std::string_view suffix, dtype;
  std::vector<int64_t> shape;  ///< outermost dimension first
};

/// In the order of StoredMatrix::parts.
std::array<TensorHeader, 3> additive_headers(const AdditiveLayout& layout, int64_t rows, int64_t cols);

/// The three tensors of a layer, all there.
struct AdditiveFiles {
  const SafetensorsTensor *codes, *codebooks, *scales;
};

/// A layer as octalane has it: without a format where it does not compute with what config.json says, and then `type`
/// says why.
struct AdditiveLayer {
  std::string type;
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
};

/// What config.json does not say is taken from the shapes. Errors name the tensor: a dtype or shape that does not fit
/// the others or the configuration.
Expected<AdditiveLayer> additive_layer(const AdditiveFiles& files, const Json& config);

/// Says in config.json that layers are of this format; `dense` are the other weight matrices. Precondition:
/// format.additive != nullptr.
void set_additive_config(const Format& format, const std::vector<std::string>& dense, Json& config);

}  // namespace octalane
