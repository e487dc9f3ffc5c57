// An ablation build leaves one stage out of its kernels, so that timing it beside a whole build tells what the stage
// costs: cmake -D OCTALANE_ABLATION=no_decode. Its products are wrong. It says so in every kernel's name, serves
// nothing but `bench gemm`, and has neither tests nor an installation.
#pragma once

#include <cstdint>

#include "core/inline.h"

namespace octalane {

enum class Ablation : uint8_t {
  none,
  no_decode,  ///< weights stay packed: gemm multiplies its first panel again and again, gemv the bytes it reads
  no_activation_load,  ///< one value stands for all activations
  no_drain,            ///< sums stay as they are: never scaled, and matrix tiles not converted to rows of outputs
  no_store,            ///< outputs are not written
};

#ifdef OCTALANE_ABLATION
inline constexpr Ablation kAblation = Ablation::OCTALANE_ABLATION;
#else
inline constexpr Ablation kAblation = Ablation::none;
#endif

constexpr const char* name(Ablation ablation) {
  switch (ablation) {
    case Ablation::none: return "none";
    case Ablation::no_decode: return "no_decode";
    case Ablation::no_activation_load: return "no_activation_load";
    case Ablation::no_drain: return "no_drain";
    case Ablation::no_store: return "no_store";
  }
  return "";
}

OCTALANE_INLINE constexpr bool leaves_out(Ablation stage) { return kAblation == stage; }

/// Whether a gemm decodes a panel: each one or, when decoding is left out, the first of its call.
OCTALANE_INLINE constexpr bool decodes_panel(bool first) { return first || !leaves_out(Ablation::no_decode); }

}  // namespace octalane
