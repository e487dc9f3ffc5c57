// Reads of a block's memory in software.
#pragma once

#include "cuda/software/block.h"

namespace octalane::cuda {

inline uint32_t shared_address(const uint8_t* p) { return static_cast<uint32_t>(p - shared); }
inline uint32_t kept(uint32_t value) { return value; }

template <class Value>
Value read_shared(uint32_t at) {
  Value value;
  std::memcpy(&value, test::block_memory(at, sizeof value), sizeof value);
  return value;
}
inline uint4 shared_128(uint32_t at) { return read_shared<uint4>(at); }
inline uint2 shared_64(uint32_t at) { return read_shared<uint2>(at); }
inline uint32_t shared_32(uint32_t at) { return read_shared<uint32_t>(at); }
inline uint32_t shared_16(uint32_t at) { return read_shared<uint16_t>(at); }

}  // namespace octalane::cuda
