// Compile-time loops of the ISA translation units, without external linkage.
#pragma once

#include "core/inline.h"

#define OCTALANE_INLINE_LAMBDA __attribute__((always_inline))

namespace octalane {
namespace {

template <int I>
struct Constant {
  static constexpr int value = I;
};

/// body(Constant<0>), body(Constant<1>), ... body(Constant<N - 1>).
template <int N, class Body>
OCTALANE_INLINE void unroll(const Body& body) {
  if constexpr (N > 0) {
    unroll<N - 1>(body);
    body(Constant<N - 1>{});
  }
}

}  // namespace
}  // namespace octalane
