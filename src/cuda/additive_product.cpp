#include "cuda/additive_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/activation_args.h"
#include "cuda/additive_list.h"
#include "cuda/address.h"
#include "cuda/code.h"
#include "cuda/tensor_map.h"

namespace octalane::cuda {
namespace {

#define ADDITIVE(name, ...) additive_kernel<AdditiveShape<__VA_ARGS__>>(#name),
constexpr AdditiveKernel kKernels[] = {OCTALANE_ADDITIVES(ADDITIVE)};
#undef ADDITIVE

constexpr int kBox = 64;  ///< tokens and rows of an output's tile

}  // namespace

std::span<const AdditiveKernel> additive_kernels() { return kKernels; }

std::string name(const AdditiveKernel& k) {
  return fmt::format("bf16_gemm_{}x{}x{}_cuda-codebook-m{}v{}", k.rows, k.tokens, kRecordCols, k.books, k.vector);
}

std::string why_not(const AdditiveKernel& kernel, const CodebookRecords& weights) {
  const CodeSpec& code = weights.spec.code;
  if (kernel.books == code.books && kernel.vector == code.vector) return {};
  return fmt::format("wanted {} codebooks of {} values, got {} of {}", kernel.books, kernel.vector, code.books,
                     code.vector);
}

const AdditiveKernel* choose_additive_kernel(const CodebookRecords& weights, int64_t tokens) {
  const AdditiveKernel* best = nullptr;
  for (const AdditiveKernel& kernel : kKernels) {
    if (!why_not(kernel, weights).empty()) continue;
    if (best == nullptr) {
      best = &kernel;
    } else if (kernel.tokens == best->tokens) {
      if ((weights.split == 2) == (kernel.rows < best->rows)) best = &kernel;
    } else if (best->tokens < tokens ? kernel.tokens > best->tokens
                                     : kernel.tokens < best->tokens && kernel.tokens >= tokens) {
      best = &kernel;
    }
  }
  return best;
}

Expected<CodebookWeights> CodebookWeights::upload(const Session& session, CodebookRecords records) {
  Expected<Buffer> codes = session.upload(std::as_bytes(std::span(records.codes)));
  if (!codes) return fail_with(codes);
  Expected<Buffer> scales = session.upload(std::as_bytes(std::span(records.scales)));
  if (!scales) return fail_with(scales);
  Expected<Buffer> codebooks = session.upload(std::as_bytes(std::span(records.codebooks)));
  if (!codebooks) return fail_with(codebooks);
  records.codes = {};
  records.scales = {};
  records.codebooks = {};
  return CodebookWeights(std::move(records), std::move(*codes), std::move(*scales), std::move(*codebooks));
}

Expected<AdditiveProducts> AdditiveProducts::load(const Session& session) {
  return load(session, additive_code(), kKernels);
}

Expected<AdditiveProducts> AdditiveProducts::load(const Session& session, std::span<const std::byte> image,
                                                  std::span<const AdditiveKernel> kernels) {
  if (image.empty()) return fail("cuda: this build has no device code: it was made without nvcc");
  Expected<Module> module = session.load_module(image);
  if (!module) return fail_with(module);
  AdditiveProducts products(session, std::move(*module), kernels);
  for (const AdditiveKernel& kernel : kernels) {
    Expected<FunctionHandle> function = products.module_.find(kernel.function, kernel.shared_bytes);
    if (!function) return fail_with(function);
    products.functions_.push_back(*function);
  }
  return products;
}

Status AdditiveProducts::multiply(const AdditiveKernel& kernel, const CodebookWeights& weights, const StagedTokens& x,
                                  const Output& y, const Stream& stream) const {
  const CodebookRecords& about = weights.about();
  if (const std::string why = why_not(kernel, about); !why.empty()) return fail("cuda: {}: {}", name(kernel), why);
  if (x.tokens == 0) return {};
  const DriverApi& api = stream.api();
  AdditiveArgs args{};
  const Expected<TensorMap> x_map = tensor_map(api, x.x, TensorElement::bf16, x.tokens, about.padded_cols,
                                               about.padded_cols * 2, kernel.tokens, kRecordCols);
  if (!x_map) return fail_with(x_map);
  args.x = *x_map;
  args.y_stride = y.stride;
  if (y.f32) {
    args.y_f32 = pointer<float>(y.address);
  } else {
    args.y_bf16 = pointer<uint16_t>(y.address);
    if (kernel.tokens / about.split >= kBox) {
      const Expected<TensorMap> y_map =
          tensor_map(api, y.address, TensorElement::bf16, x.tokens, about.rows, y.stride * 2, kBox, kBox);
      if (!y_map) return fail_with(y_map);
      args.y = *y_map;
    }
  }
  args.records = pointer<const uint8_t>(weights.codes());
  args.scales = pointer<const uint8_t>(weights.scales());
  args.codebooks = pointer<const uint8_t>(weights.codebooks());
  args.tokens = static_cast<int32_t>(x.tokens);
  args.rows = static_cast<int32_t>(about.rows);
  args.padded_rows = static_cast<int32_t>(about.padded_rows);
  args.panels = static_cast<int32_t>(about.padded_cols / kPanelCols);
  args.group = about.spec.scale.group;
  args.split = about.split;
  const int64_t tiles = (x.tokens + kernel.tokens - 1) / kernel.tokens * ((about.rows + kernel.rows - 1) / kernel.rows);
  const int64_t blocks =
      about.split > 1 ? tiles * about.split : std::min<int64_t>(tiles, session_->device().multiprocessors);
  const Grid grid{static_cast<int>(blocks), kernel.threads, kernel.shared_bytes, about.split};
  const auto index = static_cast<size_t>(&kernel - kernels_.data());
  return session_->enqueue(functions_[index], grid, stream, args);
}

Status AdditiveProducts::stage(const RawTokens& x, Address staged, const Stream& stream) const {
  if (x.tokens == 0) return {};
  const Expected<FunctionHandle> function = module_.find(x.f32 ? "stage_codewords_f32" : "stage_codewords_bf16");
  if (!function) return fail_with(function);
  ActivationArgs args{};
  args.x = pointer<const void>(x.x);
  args.x_stride = x.stride;
  args.staged = pointer<void>(staged);
  args.tokens = static_cast<int32_t>(x.tokens);
  args.cols = static_cast<int32_t>(x.cols);
  args.padded_cols = static_cast<int32_t>((x.cols + kPanelCols - 1) / kPanelCols * kPanelCols);
  const Grid grid{static_cast<int>(x.tokens), activation_threads(args.padded_cols)};
  return session_->enqueue(*function, grid, stream, args);
}

}  // namespace octalane::cuda
