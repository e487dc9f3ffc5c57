// Loops over eight fp32 lanes, for this room's hot functions. They are compiled for AVX2 too and picked when the
// program starts; as products are never contracted, both give the same bits. Private to the additive room.
#pragma once

#include <cstdint>

#include "core/inline.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OCTALANE_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define OCTALANE_WIDE
#endif

namespace octalane::additive {

inline constexpr int64_t kLanes = 8;
using Wide = float __attribute__((vector_size(32)));
using WideInt = int32_t __attribute__((vector_size(32)));

/// Eight floats in memory, at any address.
struct __attribute__((packed, may_alias)) WideAt {
  Wide value;
};
OCTALANE_INLINE const WideAt* wide(const float* p) { return reinterpret_cast<const WideAt*>(p); }
OCTALANE_INLINE WideAt* wide(float* p) { return reinterpret_cast<WideAt*>(p); }

}  // namespace octalane::additive
