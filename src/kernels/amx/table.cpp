#include <fmt/format.h>

#include "kernels/amx/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_amx_table;

namespace {

using namespace amx;

/// Half a tile of columns takes as long as a whole one, and bytes are signed.
std::string why_not_groups(const Problem& problem) {
  std::string why = why_not_staged(problem);
  const WeightSpec& w = problem.weights;
  if (!why.empty()) return why;
  if (w.scale.group < 32) return fmt::format("groups of {} columns, wanted at least 32", w.scale.group);
  if (!w.code.is_codebook() && w.code.bits == 8 && w.code.zero < 128) return "levels of 0 to 255, wanted signed bytes";
  return {};
}

/// 32 tokens x 32 rows at once; a matrix product of 16 x 16 outputs takes 16 clocks.
constexpr Kernel row(StagedType staged, Exactness exactness, ActivationGroups (*groups)(const WeightSpec&),
                     int64_t (*scratch)(const Problem&), void (*run)(const MatmulArgs&),
                     std::string (*supports)(const Problem&) = why_not_staged) {
  const bool bf16 = staged == StagedType::bf16;
  return {.staged = staged,
          .op = Op::gemm,
          .isa = "amx",
          .exactness = exactness,
          .tile = {.m = kStripTokens, .n = kPairRows, .k = bf16 ? 32 : 64},
          .order = {.rows = kRows},
          .form = bf16 ? ActivationForm::bf16_tiles : ActivationForm::s8_tiles,
          .groups = groups,
          .instruction = bf16 ? "tdpbf16ps" : "tdpbssd",
          .nominal_ops_per_clock = bf16 ? 1024.0 : 2048.0,
          .supports = supports,
          .scratch_bytes = scratch,
          .run = run};
}

constexpr Kernel kernels[] = {
    row(StagedType::bf16, Exactness::order, no_groups, bf16_scratch, bf16_gemm),
    row(StagedType::s8_group, Exactness::bits, s8_group_groups, s8_group_scratch, s8_group_gemm, why_not_groups),
    row(StagedType::s8_row, Exactness::bits, whole_row_groups, s8_row_scratch, s8_row_gemm),
    row(StagedType::s8_xblock, Exactness::bits, block_groups, s8_block_scratch, s8_xblock_gemm),
    row(StagedType::s8_block, Exactness::bits, block_groups, s8_block_scratch, s8_block_gemm),
};

}  // namespace

constinit const IsaTable k_amx_table = {
    .name = "amx", .extends = "avx512bf16", .unavailable = unavailable, .kernels = kernels, .probes = probes};

}  // namespace octalane
