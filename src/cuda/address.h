#pragma once

#include <cstdint>

#include "cuda/driver.h"

namespace octalane::cuda {

/// A device address as device code has it.
template <class T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

}  // namespace octalane::cuda
