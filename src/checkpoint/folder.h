// Weights of a model folder: safetensors put together to the matrices that mlx-lm's layers have.
// https://github.com/ml-explore/mlx-lm; layouts: formats/mlx_*.cpp
#pragma once

#include <deque>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "files/safetensors.h"

namespace octalane {

struct FolderTensors {
  std::vector<CheckpointTensor> tensors;
  std::vector<std::vector<const SafetensorsTensor*>> files;  ///< what each lies in
  std::deque<std::vector<float>> values;  ///< what no file holds as it is: tensor scales, rotary divisors
};

/// Every quantized layer as one tensor under its module path, everything else under its own name, in order of name.
/// How a layer is quantized is what `config` says under "quantization", for its path or for all. Errors name the
/// tensor: parts that are missing, of a wrong type, or whose shapes do not fit together. Layers in a mode that octalane
/// does not compute with, or with no word of it in `config`, have no format.
Expected<FolderTensors> folder_tensors(const SafetensorsSet& files, const Json& config);

}  // namespace octalane
