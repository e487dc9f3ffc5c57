#include "cuda/gemm_table.h"

#include <fmt/format.h>

#include "core/restage.h"
#include "cuda/gemm_list.h"
#include "cuda/gemm_mma_list.h"
#include "cuda/gemm_mma_shapes.h"
#include "cuda/gemm_shapes.h"

namespace octalane::cuda {
namespace {

constexpr StagedType staged_by(Operand operand, Drain drain) {
  switch (drain) {
    case Drain::row: return operand == Operand::e4m3 ? StagedType::f8_row : StagedType::s8_row;
    case Drain::xblock: return StagedType::s8_xblock;
    case Drain::block: return StagedType::s8_block;
    case Drain::promote: return StagedType::f8_row;
    case Drain::none: break;
  }
  return StagedType::bf16;
}

template <class S>
constexpr GemmKernel whole(const char* function) {
  return {function,       staged_by(S::kOperand, S::kDrain),
          S::kCode,       S::kForm,
          S::kWords,      0,
          S::kDrain,      S::kRows,
          S::kTokens,     S::kThreads,
          S::kSharedBytes};
}

template <class S>
constexpr GemmKernel grouped(const char* function) {
  constexpr StagedType kStaged = S::kE4m3 ? StagedType::f8_group : StagedType::s8_group;
  return {function,    kStaged,  S::kCode,   S::kForm,    S::kWords,      S::kGroup,
          Drain::none, S::kRows, S::kTokens, S::kThreads, S::kSharedBytes};
}

template <class S>
constexpr GemmKernel nested(const char* function) {
  return {function,   StagedType::s8_nested, S::kCode,        S::kForm,  S::kWords, 0, Drain::none, S::kRows,
          S::kTokens, S::kThreads,           S::kSharedBytes, S::kMinima};
}

constexpr StagedType staged_by(MmaDrain drain) {
  switch (drain) {
    case MmaDrain::row: return StagedType::s8_row;
    case MmaDrain::xblock: return StagedType::s8_xblock;
    case MmaDrain::block: return StagedType::s8_block;
    case MmaDrain::group: return StagedType::s8_group;
    case MmaDrain::nested: return StagedType::s8_nested;
    case MmaDrain::none: break;
  }
  return StagedType::bf16;
}

template <class S>
constexpr GemmKernel by_mma(const char* function, int least_words) {
  return {.function = function,
          .staged = staged_by(S::kDrain),
          .code = S::kCode,
          .form = S::kForm,
          .words = S::kWords,
          .group = S::kGroup,
          .drain = Drain::none,
          .rows = S::kRows,
          .tokens = S::kTokens,
          .threads = S::kThreads,
          .shared_bytes = S::kSharedBytes,
          .minima = S::kDrain == MmaDrain::nested,
          .least_words = least_words};
}

#define GEMM(name, operand, code, form, words, drain, ...) \
  whole<GemmShape<Operand::operand, Code::code, Form::form, words, Drain::drain, __VA_ARGS__>>(#name),
#define NESTED_GEMM(name, code, ...) nested<NestedShape<Code::code, __VA_ARGS__>>(#name),
#define GROUP_GEMM(name, operand, code, form, ...) \
  grouped<GroupShape<Operand::operand, Code::code, Form::form, __VA_ARGS__>>(#name),
#define MMA_GEMM(name, drain, code, form, least, ...) \
  by_mma<GemmMmaShape<MmaDrain::drain, Code::code, Form::form, __VA_ARGS__>>(#name, least),
constexpr GemmKernel kKernels[] = {OCTALANE_GEMMS(GEMM, GROUP_GEMM, NESTED_GEMM) OCTALANE_MMA_GEMMS(MMA_GEMM)};
#undef GEMM
#undef GROUP_GEMM
#undef NESTED_GEMM
#undef MMA_GEMM

const char* code_name(Code code) {
  switch (code) {
    case Code::nibble: return "nibble";
    case Code::table: return "table";
    case Code::e4m3: return "e4m3";
    case Code::byte: break;
  }
  return "byte";
}

const char* form_name(Form form) {
  switch (form) {
    case Form::staged: return "staged";
    case Form::shift: return "shift";
    case Form::exponent: return "exponent";
    case Form::single: return "single";
    case Form::pair: return "pair";
    case Form::nested: break;
  }
  return "nested";
}

std::string groups_of(const GemmKernel& k) {
  if (k.group != 0) return fmt::format("{}", k.group);
  const bool more = k.words == 1 || (k.by_mma() && k.least_words == 1);
  return fmt::format("{}{}", 64 / k.words, more ? " and more" : "");
}

/// Lanes whose weights are packed alike.
StagedType packing(StagedType staged) {
  if (staged == StagedType::s8_xblock) return StagedType::s8_row;
  return restaged(staged) ? staged : StagedType::bf16;
}

}  // namespace

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

std::string name(const GemmKernel& k) {
  const int group = k.group != 0 ? k.group : 64 / k.words;
  const std::string form = k.form == Form::staged ? "" : fmt::format("-{}", form_name(k.form));
  return fmt::format("{}_gemm_{}x{}x{}_{}-{}{}-g{}", name(k.staged), k.rows, k.tokens,
                     k.staged == StagedType::bf16 ? 64 : 128, k.by_mma() ? "mma" : "cuda", code_name(k.code), form,
                     group);
}

std::string why_not(const GemmKernel& kernel, const Records& weights) {
  if (packing(kernel.staged) != packing(weights.staged)) {
    return fmt::format("weights are packed for {}", name(weights.staged));
  }
  if (kernel.code != weights.code) {
    return fmt::format("wanted {} codes, got {}", code_name(kernel.code), code_name(weights.code));
  }
  if (kernel.form != form_of(weights.scales)) {
    return fmt::format("wanted {} scales, got {}", form_name(kernel.form), form_name(form_of(weights.scales)));
  }
  const int words = weights.layout.words, least = kernel.by_mma() ? kernel.least_words : kernel.words;
  if (words < least || words > kernel.words || (kernel.group != 0 && kernel.group != weights.group)) {
    return fmt::format("wanted groups of {}, got {}", groups_of(kernel), weights.group);
  }
  if (kernel.staged == StagedType::s8_nested && kernel.minima != weights.spec.scale.has_bias) {
    return kernel.minima ? "for weights with minima only" : "not for weights with minima";
  }
  return restaged(kernel.staged) ? std::string() : why_no_records(weights.spec, kernel.staged);
}

std::string why_not(const GemmKernel& kernel, const DeviceInfo& device) {
  const int wanted = kernel.by_mma() ? 80 : 90;
  if (kernel.by_mma() ? device.capability >= wanted : device.capability == wanted) return {};
  return fmt::format("wanted compute capability {}, got {}", capability_text(wanted),
                     capability_text(device.capability));
}

}  // namespace octalane::cuda
