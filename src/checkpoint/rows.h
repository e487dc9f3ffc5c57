// The order of the rows of q and k: which two elements of a head turn together differs from container to container.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"

namespace octalane {

/// Where the rows of a written matrix come from.
struct RowOrder {
  int64_t head_rows = 0;   ///< 0: rows stay where they are
  bool to_halves = false;  ///< pairs (2i, 2i + 1) of each head become (i, i + head_rows / 2), or the other way round

  int64_t source(int64_t row) const {
    if (head_rows == 0) return row;
    const int64_t half = head_rows / 2, r = row % head_rows;
    return row - r + (to_halves ? r % half * 2 + r / half : r % 2 * half + r / 2);
  }
};

/// The order of a tensor's rows (of a vector: its elements) when it is written to `to`. GGUF files of llama models hold
/// adjacent pairs, model folders halves; every other family has halves in both.
Expected<RowOrder> row_order(const Checkpoint& from, const CheckpointTensor& tensor, Container to);

}  // namespace octalane
