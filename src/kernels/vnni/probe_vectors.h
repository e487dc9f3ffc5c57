// What the probe loops of 512-bit dot instructions share: operands of four bytes a unit.
#pragma once

#include <immintrin.h>

#include "kernels/probe_loops.h"

namespace octalane::vnni {
namespace {

struct DotOperands {
  using Vector = __m512i;
  static constexpr int kUnit = 4;
  OCTALANE_INLINE static Vector load(const std::byte* p) { return _mm512_load_si512(p); }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, sizeof unit);
    return _mm512_set1_epi32(unit);
  }
};

}  // namespace
}  // namespace octalane::vnni
