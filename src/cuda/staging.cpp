#include "cuda/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/restage.h"
#include "cuda/activation_args.h"
#include "cuda/address.h"
#include "cuda/code.h"

namespace octalane::cuda {
namespace {

constexpr const char* kFunctions[] = {"stage_bf16_f32", "stage_bf16_bf16", "stage_f16_f32",  "stage_f16_bf16",
                                      "stage_s8_f32",   "stage_s8_bf16",   "stage_e4m3_f32", "stage_e4m3_bf16"};
constexpr int64_t kMinimaBytes = 32;   // of a token and 256 columns
constexpr int kCapabilityOfE4m3 = 90;  // of the code that this build has

int64_t aligned(int64_t bytes) { return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment; }

bool is_wide(const StagingForm& form) {
  return form.element == StagedElement::bf16 || form.element == StagedElement::f16;
}

/// Bytes of the parts of a workspace, each a multiple of the alignment.
struct Parts {
  int64_t x = 0, scales = 0, sums = 0, minima = 0;

  Parts(const StagingForm& form, int64_t tokens, int64_t cols) {
    const int64_t padded = staged_columns(form, cols);
    x = aligned(tokens * padded * (is_wide(form) ? 2 : 1));
    if (form.element == StagedElement::bf16) return;
    if (form.element == StagedElement::f16) {
      scales = aligned(tokens * 4), sums = aligned(tokens * (padded / form.group) * 4);
      return;
    }
    const int64_t groups = form.group == 0 ? 1 : (padded + form.group - 1) / form.group;
    scales = aligned(groups * padded_tokens(tokens) * 4);
    if (form.sums) sums = scales;
    if (form.minima) minima = aligned((padded + kSuperCols - 1) / kSuperCols * padded_tokens(tokens) * kMinimaBytes);
  }
  int64_t bytes() const { return x + scales + sums + minima; }
};

/// `tokens`: that are staged.
Status check_arguments(const StagingForm& form, const Tokens& x, int64_t tokens, const Workspace& workspace) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  const unsigned element = x.f32 ? 4 : 2;
  if (tokens < 0 || tokens > kMost || x.tokens < 0 || x.tokens > kMost || x.cols < 1 || x.cols > kMost) {
    return fail("cuda: staging: wanted up to {} tokens and columns, got {} x {}", kMost, std::max(tokens, x.tokens),
                x.cols);
  }
  if (x.address % element != 0) {
    return fail("cuda: staging: wanted tokens at a multiple of {} bytes, got {:#x}", element, x.address);
  }
  if (workspace.address % kWorkspaceAlignment != 0) {
    return fail("cuda: staging: wanted a workspace at a multiple of {} bytes, got {:#x}", kWorkspaceAlignment,
                workspace.address);
  }
  if (const int64_t wanted = staging_bytes(form, tokens, x.cols); workspace.bytes < wanted) {
    return fail("cuda: staging: wanted a workspace of {} bytes for {} x {}, got {}", wanted, tokens, x.cols,
                workspace.bytes);
  }
  return {};
}

}  // namespace

StagingForm staging_form(StagedType staged, int group) {
  switch (info(staged).lane) {
    case Lane::s8: break;
    case Lane::f8: return {.element = StagedElement::e4m3};
    default: return {};
  }
  if (staged == StagedType::s8_row) return {.element = StagedElement::s8};
  if (staged == StagedType::s8_nested) {
    return {.element = StagedElement::s8, .group = kSuperCols, .minima = true};
  }
  if (restaged(staged)) return {.element = StagedElement::s8, .group = kRestageBlock};
  return {.element = StagedElement::s8, .group = group < 32 ? 32 : group, .sums = true};
}

std::string name(const StagingForm& form) {
  if (form.element == StagedElement::bf16) return "bf16";
  if (form.element == StagedElement::f16) {
    return fmt::format("f16 for {} by {}", form.code == Code::nibble ? "nibbles" : "bytes", form.group);
  }
  const char* const element = form.element == StagedElement::s8 ? "s8" : "e4m3";
  if (form.group == 0) return fmt::format("{} by row", element);
  return fmt::format("{} by {}{}", element, form.group, form.sums ? " with sums" : form.minima ? " with minima" : "");
}

int64_t staged_columns(const StagingForm& form, int64_t cols) {
  const int64_t unit = form.element == StagedElement::f16 ? kSuperCols : kPanelCols;
  return (cols + unit - 1) / unit * unit;
}

int64_t staging_bytes(const StagingForm& form, int64_t tokens, int64_t cols) {
  return Parts(form, tokens, cols).bytes();
}

Expected<Staging> Staging::load(const Session& session) {
  if (activation_code().empty()) return fail("cuda: this build has no device code: it was made without nvcc");
  Expected<Module> module = session.load_module(activation_code());
  if (!module) return fail_with(module);
  Staging staging(session, std::move(*module));
  for (const char* const function : kFunctions) {
    const bool e4m3 = std::string_view(function).starts_with("stage_e4m3");
    if (e4m3 && session.device().capability < kCapabilityOfE4m3) {
      staging.functions_.push_back(nullptr);
      continue;
    }
    const Expected<FunctionHandle> found = staging.module_.find(function);
    if (!found) return fail_with(found);
    staging.functions_.push_back(*found);
  }
  return staging;
}

Expected<StagedTokens> Staging::stage(const StagingForm& form, const Tokens& x, const Workspace& workspace,
                                      const Stream& stream) const {
  return enqueue(form, x, {.tokens = x.tokens}, workspace, stream);
}

Expected<StagedTokens> Staging::stage_gathered(const StagingForm& form, const Tokens& x, const Gather& gather,
                                               const Workspace& workspace, const Stream& stream) const {
  if (gather.source == 0 || gather.source % 4 != 0) {
    return fail("cuda: staging: wanted the rows of tokens at a multiple of 4 bytes, got {:#x}", gather.source);
  }
  if (gather.in_place && gather.tokens > x.tokens) {
    return fail("cuda: staging: wanted at least {} rows, got {}", gather.tokens, x.tokens);
  }
  return enqueue(form, x, gather, workspace, stream);
}

Expected<StagedTokens> Staging::enqueue(const StagingForm& form, const Tokens& x, const Gather& gather,
                                        const Workspace& workspace, const Stream& stream) const {
  const int64_t tokens = gather.tokens;
  if (const Status sound = check_arguments(form, x, tokens, workspace); !sound) return fail_with(sound);
  const size_t index = static_cast<size_t>(form.element) * 2 + (x.f32 ? 0 : 1);
  if (functions_[index] == nullptr) {
    return fail("cuda: staging: {}: wanted compute capability {}, got {}", name(form),
                capability_text(kCapabilityOfE4m3), capability_text(session_->device().capability));
  }
  const Parts parts(form, tokens, x.cols);
  StagedTokens staged{.tokens = tokens, .x = workspace.address};
  if (parts.scales > 0) staged.scales = workspace.address + static_cast<Address>(parts.x);
  if (parts.sums > 0) staged.sums = staged.scales + static_cast<Address>(parts.scales);
  if (parts.minima > 0) staged.minima = staged.scales + static_cast<Address>(parts.scales + parts.sums);
  if (tokens == 0) return staged;
  const auto padded_cols = static_cast<int32_t>(staged_columns(form, x.cols));
  const ActivationArgs args{.x = pointer<const void>(x.address),
                            .x_stride = x.stride,
                            .staged = pointer<void>(staged.x),
                            .scales = pointer<float>(staged.scales),
                            .sums = pointer<float>(staged.sums),
                            .minima = pointer<uint16_t>(staged.minima),
                            .tokens = static_cast<int32_t>(tokens),
                            .cols = static_cast<int32_t>(x.cols),
                            .padded_tokens = static_cast<int32_t>(padded_tokens(tokens)),
                            .padded_cols = padded_cols,
                            .group = form.group,
                            .sum_group = form.sums || form.element == StagedElement::f16 ? form.group : 32,
                            .code = static_cast<int32_t>(form.code),
                            .source = pointer<const int32_t>(gather.source),
                            .in_place = gather.in_place ? 1 : 0};
  const Grid grid{.blocks = is_wide(form) ? args.tokens : args.padded_tokens,
                  .threads = activation_threads(padded_cols)};
  if (const Status s = session_->enqueue(functions_[index], grid, stream, args); !s) return fail_with(s);
  return staged;
}

}  // namespace octalane::cuda
