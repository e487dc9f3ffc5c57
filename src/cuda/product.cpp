#include "cuda/product.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/half.h"
#include "cuda/code.h"
#include "cuda/gemm_args.h"
#include "cuda/product_args.h"
#include "cuda/tensor_map.h"

namespace octalane::cuda {
namespace {

int words_of(const GemmKernel& kernel) { return kernel.staged == StagedType::bf16 ? 64 : 128; }

/// The levels of a table as E4M3, which they fit.
std::array<uint8_t, 16> e4m3_table(const Records& weights) {
  std::array<uint8_t, 16> table{};
  for (size_t i = 0; i < 16; ++i) table[i] = f32_to_e4m3(static_cast<float>(int{weights.table[i]} - 128));
  return table;
}

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
  Products products(session);
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (!why_not(kernel, session.device()).empty()) {
      products.functions_.push_back(nullptr);
      continue;
    }
    std::optional<Module>& module = kernel.by_mma() ? products.mma_module_ : products.wgmma_module_;
    if (!module) {
      Expected<Module> loaded = session.load_module(kernel.by_mma() ? gemm_mma_code() : gemm_code());
      if (!loaded) return fail_with(loaded);
      module.emplace(std::move(*loaded));
    }
    const Expected<FunctionHandle> function = module->find(kernel.function, kernel.shared_bytes);
    if (!function) return fail_with(function);
    products.functions_.push_back(*function);
  }
  return products;
}

FunctionHandle Products::function(const GemmKernel& kernel) const {
  return functions_[static_cast<size_t>(&kernel - gemm_kernels().data())];
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
  if (kernel.by_mma()) {
    return fail("cuda: {}: wanted a kernel of wgmma for a product over experts, got one of mma.sync", name(kernel));
  }
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
  if (const std::string why = why_not(kernel, session_->device()); !why.empty()) {
    return fail("cuda: {}: {}", name(kernel), why);
  }
  if (x.tokens == 0) return {};
  constexpr int64_t kMost = int64_t{1} << 30;  // kernels count in 32 bits
  if (x.tokens > kMost || about.padded_rows > kMost) {
    return fail("cuda: {}: wanted at most {} tokens and rows, got {} and {}", name(kernel), kMost, x.tokens,
                about.rows);
  }
  if (const int64_t tiles = count_tiles(kernel, about, x, experts); tiles > kMost) {
    return fail("cuda: {}: wanted at most {} tiles, got {}", name(kernel), kMost, tiles);
  }
  return kernel.by_mma() ? multiply_by_mma(kernel, weights, x, y, stream, options)
                         : multiply_by_wgmma(kernel, weights, x, experts, y, stream, options);
}

Status Products::multiply_by_wgmma(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                                   const ExpertTiles* experts, const Output& y, const Stream& stream,
                                   const ProductOptions& options) const {
  const Records& about = weights.about();
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
  set_operands(args, weights, x, options);
  if (experts != nullptr) {
    args.experts = pointer<const ExpertTile>(experts->tiles);
    args.expert_tiles = pointer<const int32_t>(experts->count);
  }
  args.expert_rows = static_cast<int32_t>(about.expert_rows());
  args.promote = std::max(1, options.promote_cols / kPanelCols);
  if (kernel.staged == StagedType::f8_group) {
    const std::array<uint8_t, 16> table = e4m3_table(about);
    std::memcpy(args.table, table.data(), sizeof args.table);
  }
  args.shifted = pointer<const uint64_t>(weights.shifted());
  const int64_t tiles = count_tiles(kernel, about, x, experts);
  const Grid grid{static_cast<int>(std::min<int64_t>(tiles, session_->device().multiprocessors)), kernel.threads,
                  kernel.shared_bytes};
  return session_->enqueue(function(kernel), grid, stream, args);
}

}  // namespace octalane::cuda
