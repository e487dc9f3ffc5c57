// cp.async in software.
#pragma once

#include "cuda/software/block.h"

namespace octalane::cuda {

inline void copy_16(uint32_t to, const void* from) { test::begin_copy(to, from); }
inline void copies_commit() { test::commit_copies(); }
template <int Pending>
void copies_wait() {
  test::wait_for_copies(Pending);
}

}  // namespace octalane::cuda
