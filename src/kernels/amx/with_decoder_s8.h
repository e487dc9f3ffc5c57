// Chooses the int8 decoder of these weights.
#pragma once

#include "kernels/amx/decode_s8.h"
#include "kernels/amx/gemm.h"

namespace octalane::amx {
namespace {

/// What an int8 decoder needs beside the weights: the scales of the units, and their length.
template <class Decoder>
struct RestagingDecoder {
  Decoder decoder;
  const float* s8;
  int64_t units, unit_blocks, blocks;

  static void fill(const void* self, int64_t tile, int64_t step, int64_t steps, std::byte* out) {
    const auto& d = *static_cast<const RestagingDecoder*>(self);
    const int64_t end = 2 * (step + steps) < d.blocks ? 2 * (step + steps) : d.blocks;  // a step is two blocks
    d.decoder(tile, 2 * step, end, d.s8 + tile * d.units * kRows, d.unit_blocks, out, kStepPair);
  }
};

template <class Decoder>
OCTALANE_INLINE void with(const MatmulArgs& args, int64_t units, void (*multiply)(const MatmulArgs&, const Decode&)) {
  const int64_t blocks = args.w.padded_cols() / kBlockCols;
  const RestagingDecoder<Decoder> decoder{Decoder(args.w), args.restage, units,
                                          units == 1 ? blocks + 1 : kRestageBlock / kBlockCols, blocks};
  multiply(args, {&decoder, decoder.fill});
}

/// multiply(args, decode) with the decoder for these codes. `units` of a row: 1, or its blocks of 256 columns.
OCTALANE_INLINE void with_decoder(const MatmulArgs& args, int64_t units,
                                  void (*multiply)(const MatmulArgs&, const Decode&)) {
  if (args.w.spec.code.map == CodeMap::table) return with<CodeDecoderS8<4, true>>(args, units, multiply);
  switch (args.w.spec.code.bits) {
    case 2: return with<CodeDecoderS8<2, false>>(args, units, multiply);
    case 3: return with<CodeDecoderS8<3, false>>(args, units, multiply);
    case 4: return with<CodeDecoderS8<4, false>>(args, units, multiply);
    case 5: return with<CodeDecoderS8<5, false>>(args, units, multiply);
    default: return with<CodeDecoderS8<6, false>>(args, units, multiply);
  }
}

struct S8 {
  static constexpr int kStepCols = 64;
  OCTALANE_INLINE static const std::byte* tokens(const ActivationsView& x) {
    return reinterpret_cast<const std::byte*>(x.codes);
  }
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    product_s8<C, A, B>();
  }
};

}  // namespace
}  // namespace octalane::amx
