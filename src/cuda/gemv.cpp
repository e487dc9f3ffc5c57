#include "cuda/gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/restage.h"
#include "cuda/address.h"
#include "cuda/code.h"
#include "cuda/gemv_args.h"

namespace octalane::cuda {
namespace {

constexpr int kCapability = 80, kCapabilityOfClusters = 90;
// Clusters are a grid's second dimension.
constexpr int64_t kMostRows = int64_t{65535} * kGemvGroups * kGemvGroupRows;

#define OCTALANE_GEMV(code, group, tokens) \
  { "gemv_" #code "_" #group "_" #tokens, Code::code, group, tokens }
#define OCTALANE_GEMVS(code, group)                                                            \
  OCTALANE_GEMV(code, group, 1), OCTALANE_GEMV(code, group, 4), OCTALANE_GEMV(code, group, 8), \
      OCTALANE_GEMV(code, group, 16)
constexpr GemvKernel kKernels[] = {
    OCTALANE_GEMVS(nibble, 16), OCTALANE_GEMVS(nibble, 32), OCTALANE_GEMVS(nibble, 64),
    OCTALANE_GEMVS(table, 16),  OCTALANE_GEMVS(table, 32),  OCTALANE_GEMVS(table, 64),
    OCTALANE_GEMVS(byte, 16),   OCTALANE_GEMVS(byte, 32),   OCTALANE_GEMVS(byte, 64),
};
#undef OCTALANE_GEMVS
#undef OCTALANE_GEMV

const char* code_name(Code code) {
  const char* const names[] = {"nibble", "table", "byte", "e4m3"};
  return names[static_cast<int>(code)];
}

int panels_of(const Records& weights) { return static_cast<int>(weights.padded_cols / kPanelCols); }

int group_of(const Records& weights) { return kRecordCols / weights.layout.words; }

GemvLaunch launch_of(const GemvKernel& kernel, const Records& weights, int tokens, const DeviceInfo& device) {
  return gemv_launch(tokens, kernel.tokens, static_cast<int>(weights.rows), panels_of(weights), device.multiprocessors,
                     kernel.group);
}

}  // namespace

std::span<const GemvKernel> gemv_kernels() { return kKernels; }

StagingForm staging_form(const GemvKernel& kernel) {
  // Levels of tables are bytes too by the time that they meet tokens.
  const Code code = kernel.code == Code::nibble ? Code::nibble : Code::byte;
  return {.element = StagedElement::f16, .group = kernel.group, .code = code};
}

std::string name(const GemvKernel& kernel) {
  return fmt::format("bf16_gemv_{}x{}x{}_cuda-{}-g{}", kGemvGroupRows, kernel.tokens, kRecordCols,
                     code_name(kernel.code), kernel.group);
}

int tokens_at_once(const GemvKernel& kernel, const Records& weights, const DeviceInfo& device) {
  int tokens = kernel.tokens;
  while (tokens > 0 && launch_of(kernel, weights, tokens, device).shared_bytes > device.shared_bytes_per_block)
    --tokens;
  return tokens;
}

std::string why_not(const GemvKernel& kernel, const Records& weights, const DeviceInfo& device) {
  if (device.capability < kCapability) {
    return fmt::format("wanted compute capability {}, got {}", capability_text(kCapability),
                       capability_text(device.capability));
  }
  if (restaged(weights.staged)) {
    return fmt::format("weights are packed for {}", octalane::name(weights.staged));
  }
  if (kernel.code != weights.code) {
    return fmt::format("wanted {} codes, got {}", code_name(kernel.code), code_name(weights.code));
  }
  if (kernel.group != group_of(weights)) {
    return fmt::format("wanted groups of {}{}, got {}", kernel.group, kernel.group == 64 ? " and more" : "",
                       weights.group);
  }
  if (weights.scales == ScaleWords::nested && kernel.group == 64) return "nested scales need groups of 16 or 32";
  if (weights.rows > kMostRows) return fmt::format("wanted at most {} rows, got {}", kMostRows, weights.rows);
  if (tokens_at_once(kernel, weights, device) > 0) return {};
  return fmt::format("the parts of a token of {} columns do not fit {} bytes of shared memory", weights.cols,
                     device.shared_bytes_per_block);
}

int64_t partial_bytes(const Records& weights, int64_t tokens, const DeviceInfo& device) {
  if (device.capability >= kCapabilityOfClusters) return 0;
  int64_t most = 0;
  const int groups = gemv_groups(static_cast<int>(weights.rows));
  for (const GemvKernel& kernel : kKernels) {
    const int slices = gemv_split(panels_of(weights), groups, kernel.tokens).slices;
    if (slices > 1) most = std::max(most, slices * std::min<int64_t>(tokens, kernel.tokens) * weights.padded_rows * 4);
  }
  return most;
}

Expected<Gemvs> Gemvs::load(const Session& session) {
  if (gemv_code().empty()) return fail("cuda: this build has no device code: it was made without nvcc");
  Expected<Module> module = session.load_module(gemv_code());
  if (!module) return fail_with(module);
  Gemvs gemvs(session, std::move(*module));
  const auto shared_bytes = static_cast<int>(session.device().shared_bytes_per_block);
  for (const GemvKernel& kernel : gemv_kernels()) {
    const Expected<FunctionHandle> function = gemvs.module_.find(kernel.function, shared_bytes);
    if (!function) return fail_with(function);
    gemvs.functions_.push_back(*function);
  }
  const Expected<FunctionHandle> sum = gemvs.module_.find("gemv_sum");
  if (!sum) return fail_with(sum);
  gemvs.sum_ = *sum;
  return gemvs;
}

Status Gemvs::multiply(const GemvKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                       const Stream& stream, Address partials) const {
  const DeviceInfo& device = session_->device();
  if (const std::string why = why_not(kernel, weights.about(), device); !why.empty()) {
    return fail("cuda: {}: {}", name(kernel), why);
  }
  if (weights.about().experts != 1) {
    return fail("cuda: {}: wanted the weights of one matrix, got {} experts", name(kernel), weights.about().experts);
  }
  if (!y.f32) return fail("cuda: {}: wanted an output of fp32, got bfloat16", name(kernel));
  if (partials == 0 && partial_bytes(weights.about(), x.tokens, device) > 0) {
    return fail("cuda: {}: wanted memory for partial sums, as the device has no clusters, got none", name(kernel));
  }
  const int most = tokens_at_once(kernel, weights.about(), device);
  for (int64_t first = 0; first < x.tokens;) {
    const auto tokens = static_cast<int>(std::min<int64_t>(most, x.tokens - first));
    if (const Status s = launch(kernel, weights, x, y, {first, tokens}, stream, partials); !s) return s;
    first += tokens;
  }
  return {};
}

Status Gemvs::launch(const GemvKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                     const Part& part, const Stream& stream, Address partials) const {
  const Records& about = weights.about();
  GemvArgs args{};
  args.records = pointer<const uint8_t>(weights.records());
  args.supers = pointer<const uint32_t>(weights.supers());
  const int64_t cols = gemv_cols(panels_of(about));
  args.x = pointer<const uint16_t>(x.x + static_cast<Address>(part.first * cols * 2));
  args.x_scales = pointer<const float>(x.scales + static_cast<Address>(part.first * 4));
  args.x_sums = pointer<const float>(x.sums + static_cast<Address>(part.first * (cols / kernel.group) * 4));
  args.y = pointer<float>(y.address + static_cast<Address>(part.first * y.stride * 4));
  args.partials = pointer<float>(partials);
  args.y_stride = y.stride;
  args.tokens = part.tokens;
  args.rows = static_cast<int32_t>(about.rows);
  args.padded_rows = static_cast<int32_t>(about.padded_rows);
  args.panels = panels_of(about);
  args.scale_words = static_cast<int32_t>(about.scales);
  args.zero = about.zero;
  std::memcpy(args.table, about.table.data(), sizeof args.table);
  const GemvLaunch launch = launch_of(kernel, about, part.tokens, session_->device());
  const int slices = launch.split.slices;
  args.slices = slices;
  args.warps = launch.split.warps;
  args.groups = gemv_groups(args.rows);
  const Grid grid{.blocks = slices,
                  .threads = kGemvThreads,
                  .shared_bytes = launch.shared_bytes,
                  .cluster = partials == 0 ? slices : 1,
                  .blocks_y = launch.clusters,
                  .early = session_->device().capability >= 90};
  const auto index = static_cast<size_t>(&kernel - gemv_kernels().data());
  const Status done = session_->enqueue(functions_[index], grid, stream, args);
  if (!done || partials == 0 || slices == 1) return done;
  const Grid rows{.blocks = (args.rows + kGemvSumThreads - 1) / kGemvSumThreads,
                  .threads = kGemvSumThreads,
                  .blocks_y = part.tokens};
  return session_->enqueue(sum_, rows, stream, args);
}

}  // namespace octalane::cuda
