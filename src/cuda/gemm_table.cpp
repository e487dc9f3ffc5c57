#include "cuda/gemm_table.h"

#include <fmt/format.h>

#include "cuda/gemm_list.h"
#include "cuda/gemm_shapes.h"

namespace octalane::cuda {
namespace {

constexpr StagedType staged_by(Drain drain) {
  switch (drain) {
    case Drain::row: return StagedType::s8_row;
    case Drain::xblock: return StagedType::s8_xblock;
    case Drain::block: return StagedType::s8_block;
    case Drain::promote: return StagedType::f8_row;
    case Drain::none: break;
  }
  return StagedType::bf16;
}

template <class S>
constexpr GemmKernel whole(const char* function) {
  return {function, staged_by(S::kDrain), S::kCode, 0, false, S::kFine, S::kRows, S::kTokens, S::kThreads, S::kSharedBytes};
}

template <class S>
constexpr GemmKernel grouped(const char* function) {
  return {function, StagedType::s8_group, S::kCode, S::kGroup, S::kBias, false, S::kRows, S::kTokens, S::kThreads,
          S::kSharedBytes};
}

#define GEMM(name, operand, code, drain, ...) \
  whole<GemmShape<Operand::operand, Code::code, Drain::drain, __VA_ARGS__>>(#name),
#define GROUP_GEMM(name, code, ...) grouped<GroupShape<Code::code, __VA_ARGS__>>(#name),
constexpr GemmKernel kKernels[] = {OCTALANE_GEMMS(GEMM, GROUP_GEMM)};
#undef GEMM
#undef GROUP_GEMM

const char* code_name(Code code) {
  switch (code) {
    case Code::nibble: return "nibble";
    case Code::table: return "table";
    case Code::byte: break;
  }
  return "byte";
}

}  // namespace

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

std::string name(const GemmKernel& k) {
  const std::string group = k.group == 0 ? "" : fmt::format("-{}{}", k.group, k.bias ? "" : "-plain");
  return fmt::format("{}_gemm_{}x{}x{}_cuda-{}{}{}", name(k.staged), k.rows, k.tokens,
                     k.staged == StagedType::bf16 ? 64 : 128, code_name(k.code), group, k.fine ? "-fine" : "");
}

std::string why_not(const GemmKernel& kernel, const Records& weights) {
  const bool same_records = kernel.staged == weights.staged ||
                            (weights.staged == StagedType::s8_row && kernel.staged == StagedType::s8_xblock) ||
                            (weights.staged == StagedType::s8_xblock && kernel.staged == StagedType::s8_row) ||
                            (weights.staged == StagedType::bf16 && kernel.staged == StagedType::s8_group) ||
                            (weights.staged == StagedType::s8_group && kernel.staged == StagedType::bf16);
  if (!same_records) return fmt::format("weights are packed for {}", name(weights.staged));
  if (kernel.code != weights.code) return fmt::format("wanted {} codes, got {}", code_name(kernel.code), code_name(weights.code));
  if (kernel.group != 0 && kernel.group != weights.group) {
    return fmt::format("wanted groups of {}, got {}", kernel.group, weights.group);
  }
  if (kernel.fine != (weights.group < 32)) return kernel.fine ? "for groups of 16 only" : "not for groups of 16";
  if (kernel.staged == StagedType::s8_group && kernel.bias != weights.has_bias()) {
    return kernel.bias ? "for weights with a bias only" : "not for weights with a bias";
  }
  return {};
}

}  // namespace octalane::cuda
