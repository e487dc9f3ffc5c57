#include "kernels/scalar/kernels.h"

namespace octalane::scalar {

uint64_t read_memory(const std::byte* data, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t seen[4] = {};
  for (int64_t i = 0; i < bytes / 8; i += 4) {
    for (int lane = 0; lane < 4; ++lane) seen[lane] |= words[i + lane];
  }
  return seen[0] | seen[1] | seen[2] | seen[3];
}

}  // namespace octalane::scalar
