// What all product kernels are launched with. Of GemmArgs and GemmMmaArgs, whose fields have the same names; private to
// the products.
#pragma once

#include <cstring>

#include "cuda/address.h"
#include "cuda/product.h"

namespace octalane::cuda {

template <class Args>
void set_operands(Args& args, const DeviceWeights& weights, const StagedTokens& x, const ProductOptions& options) {
  const Records& about = weights.about();
  args.records = pointer<const uint8_t>(weights.records());
  args.supers = pointer<const uint32_t>(weights.supers());
  args.weight_scales = pointer<const float>(weights.unit_scales());
  args.token_scales = pointer<const float>(x.scales);
  args.token_sums = pointer<const float>(x.sums);
  args.token_minima = pointer<const uint16_t>(x.minima);
  args.tokens = static_cast<int32_t>(x.tokens);
  args.rows = static_cast<int32_t>(about.rows);
  args.padded_tokens = static_cast<int32_t>(padded_tokens(x.tokens));
  args.padded_rows = static_cast<int32_t>(about.padded_rows);
  args.panels = static_cast<int32_t>(about.padded_cols / kPanelCols);
  args.bf16_scales = about.scales == ScaleWords::pair_bf16 || about.scales == ScaleWords::single_bf16;
  args.zero = about.zero;
  // Codes of 8 bits do not fit the mantissa above bit 16.
  const bool byte = about.spec.code.bits == 8 || about.code == Code::table;
  args.magic = byte ? 0x47000000 : 0x43000000;
  args.selector = byte ? 0x7404 : 0x7044;
  args.step = byte ? 0x10 : 0x100;
  args.offset = -static_cast<float>((byte ? 32768 : 128) + about.zero);
  args.minus_pivots = static_cast<uint32_t>(-65537 * about.pivot);
  std::memcpy(args.table, about.table.data(), sizeof args.table);
  args.clocks = pointer<uint64_t>(options.clocks);
}

/// Over experts (null: of one matrix): as many as the worst routing has.
inline int64_t count_tiles(const GemmKernel& kernel, const Records& weights, const StagedTokens& x,
                           const ExpertTiles* experts) {
  const int64_t tiles = experts == nullptr ? (x.tokens + kernel.tokens - 1) / kernel.tokens : experts->most;
  return tiles * ((weights.rows + kernel.rows - 1) / kernel.rows);
}

}  // namespace octalane::cuda
