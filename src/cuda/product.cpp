#include "cuda/product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/address.h"
#include "cuda/code.h"
#include "cuda/gemm_args.h"
#include "cuda/tensor_map.h"

namespace octalane::cuda {
namespace {

int words_of(const GemmKernel& kernel) { return kernel.staged == StagedType::bf16 ? 64 : 128; }

}  // namespace

Expected<DeviceWeights> DeviceWeights::upload(const Session& session, Records records) {
  Expected<Buffer> bytes = session.upload(records.bytes);
  if (!bytes) return fail_with(bytes);
  Expected<Buffer> supers = session.upload(std::as_bytes(std::span(records.supers)));
  if (!supers) return fail_with(supers);
  Expected<Buffer> scales = session.upload(std::as_bytes(std::span(records.unit_scales)));
  if (!scales) return fail_with(scales);
  Expected<Buffer> shifted = session.upload(std::as_bytes(std::span(records.shifted)));
  if (!shifted) return fail_with(shifted);
  records.bytes = {};
  records.supers = {};
  records.unit_scales = {};
  return DeviceWeights(std::move(records), std::move(*bytes), std::move(*supers), std::move(*scales),
                       std::move(*shifted));
}

Expected<Products> Products::load(const Session& session) {
  if (gemm_code().empty()) return fail("cuda: this build has no device code: it was made without nvcc");
  Expected<Module> module = session.load_module(gemm_code());
  if (!module) return fail_with(module);
  Products products(session, std::move(*module));
  for (const GemmKernel& kernel : gemm_kernels()) {
    Expected<FunctionHandle> function = products.module_.find(kernel.function, kernel.shared_bytes);
    if (!function) return fail_with(function);
    products.functions_.push_back(*function);
  }
  return products;
}

Status Products::multiply(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                          const Output& y, const Stream& stream, const ProductOptions& options) const {
  if (weights.about().experts != 1) {
    return fail("cuda: {}: wanted the weights of one matrix, got {} experts", name(kernel), weights.about().experts);
  }
  return launch(kernel, weights, x, nullptr, y, stream, options);
}

Status Products::multiply_experts(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                                  const ExpertTiles& experts, const Output& y, const Stream& stream,
                                  const ProductOptions& options) const {
  if (experts.tokens != kernel.tokens) {
    return fail("cuda: {}: wanted a table for tiles of {} tokens, got {}", name(kernel), kernel.tokens, experts.tokens);
  }
  return launch(kernel, weights, x, &experts, y, stream, options);
}

Status Products::launch(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                        const ExpertTiles* experts, const Output& y, const Stream& stream,
                        const ProductOptions& options) const {
  const Records& about = weights.about();
  if (const std::string why = why_not(kernel, about); !why.empty()) return fail("cuda: {}: {}", name(kernel), why);
  if (x.tokens == 0) return {};
  constexpr int64_t kMost = int64_t{1} << 30;  // kernels count in 32 bits
  if (x.tokens > kMost || about.padded_rows > kMost) {
    return fail("cuda: {}: wanted at most {} tokens and rows, got {} and {}", name(kernel), kMost, x.tokens,
                about.rows);
  }
  const int64_t token_tiles = experts == nullptr ? (x.tokens + kernel.tokens - 1) / kernel.tokens : experts->most;
  const int64_t tiles = token_tiles * ((about.rows + kernel.rows - 1) / kernel.rows);
  if (tiles > kMost) return fail("cuda: {}: wanted at most {} tiles, got {}", name(kernel), kMost, tiles);
  const bool wide = kernel.staged == StagedType::bf16;
  const DriverApi& api = stream.api();
  GemmArgs args{};
  const Expected<TensorMap> x_map =
      tensor_map(api, x.x, wide ? TensorElement::bf16 : TensorElement::u8, x.tokens, about.padded_cols,
                 about.padded_cols * (wide ? 2 : 1), kernel.tokens, words_of(kernel));
  if (!x_map) return fail_with(x_map);
  args.x = *x_map;
  if (y.f32) {
    args.y_f32 = pointer<float>(y.address);
    args.y_stride = y.stride;
  } else {
    const Expected<TensorMap> y_map =
        tensor_map(api, y.address, TensorElement::bf16, x.tokens, about.rows, y.stride * 2, 64, 64);
    if (!y_map) return fail_with(y_map);
    args.y = *y_map;
  }
  args.records = pointer<const uint8_t>(weights.records());
  args.supers = pointer<const uint32_t>(weights.supers());
  args.weight_scales = pointer<const float>(weights.unit_scales());
  args.token_scales = pointer<const float>(x.scales);
  args.token_sums = pointer<const float>(x.sums);
  args.token_minima = pointer<const uint16_t>(x.minima);
  if (experts != nullptr) {
    args.experts = pointer<const ExpertTile>(experts->tiles);
    args.expert_tiles = pointer<const int32_t>(experts->count);
  }
  args.tokens = static_cast<int32_t>(x.tokens);
  args.rows = static_cast<int32_t>(about.rows);
  args.padded_tokens = static_cast<int32_t>(padded_tokens(x.tokens));
  args.padded_rows = static_cast<int32_t>(about.padded_rows);
  args.expert_rows = static_cast<int32_t>(about.expert_rows());
  args.panels = static_cast<int32_t>(about.padded_cols / kPanelCols);
  args.bf16_scales = about.scales == ScaleWords::pair_bf16 || about.scales == ScaleWords::single_bf16;
  args.promote = std::max(1, options.promote_cols / kPanelCols);
  args.zero = about.zero;
  // Codes of 8 bits do not fit the mantissa above bit 16.
  const bool byte = about.spec.code.bits == 8 || about.code == Code::table;
  args.magic = byte ? 0x47000000 : 0x43000000;
  args.selector = byte ? 0x7404 : 0x7044;
  args.step = byte ? 0x10 : 0x100;
  args.offset = -static_cast<float>((byte ? 32768 : 128) + about.zero);
  args.minus_pivots = static_cast<uint32_t>(-65537 * about.pivot);
  std::memcpy(args.table, about.table.data(), sizeof args.table);
  args.shifted = pointer<const uint64_t>(weights.shifted());
  args.clocks = pointer<uint64_t>(options.clocks);
  const Grid grid{static_cast<int>(std::min<int64_t>(tiles, session_->device().multiprocessors)), kernel.threads,
                  kernel.shared_bytes};
  const auto index = static_cast<size_t>(&kernel - gemm_kernels().data());
  return session_->enqueue(functions_[index], grid, stream, args);
}

}  // namespace octalane::cuda
