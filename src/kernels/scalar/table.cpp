#include "kernels/scalar/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_scalar_table;

namespace {

int64_t no_scratch(const Problem&) { return 0; }
int64_t staged_row(const Problem& problem) { return problem.cols; }
int64_t staged_floats(const Problem& problem) { return problem.cols * static_cast<int64_t>(sizeof(float)); }

constexpr ActivationForm form(Lane lane) {
  return lane == Lane::bf16 ? ActivationForm::bf16_as_f32
         : lane == Lane::s8 ? ActivationForm::s8
                            : ActivationForm::e4m3;
}

/// One output at a time. One fused multiply-add takes about 12 clocks in a chain of double conversions, an int8 product
/// about 1, an E4M3 product the 4 of a chain of additions.
constexpr Kernel row(StagedType staged, Op op, ActivationGroups (*groups)(const WeightSpec&),
                     void (*run)(const MatmulArgs&), int64_t (*scratch)(const Problem&) = no_scratch) {
  const Lane lane = kStagedTypes[static_cast<size_t>(staged)].lane;
  return {.staged = staged,
          .op = op,
          .isa = "scalar",
          .tile = {.m = 1, .n = 1, .k = 32},
          .order = {.rows = 1},
          .form = form(lane),
          .groups = groups,
          .instruction = lane == Lane::bf16 ? "mulsd+addsd"
                         : lane == Lane::s8 ? "imul"
                                            : "mulss+addss",
          .nominal_ops_per_clock = lane == Lane::bf16 ? 0.15
                                   : lane == Lane::s8 ? 1
                                                      : 0.5,
          .max_tokens = op == Op::gemv ? 1 : INT64_MAX,
          .supports = why_not_staged,
          .scratch_bytes = scratch,
          .run = run};
}

constexpr Kernel kernels[] = {
    row(StagedType::bf16, Op::gemm, no_groups, scalar::bf16_gemm),
    row(StagedType::bf16, Op::gemv, no_groups, scalar::bf16_gemv),
    row(StagedType::s8_group, Op::gemm, s8_group_groups, scalar::s8_group_gemm),
    row(StagedType::s8_group, Op::gemv, s8_group_groups, scalar::s8_group_gemv),
    row(StagedType::s8_nested, Op::gemm, s8_nested_groups, scalar::s8_nested_gemm),
    row(StagedType::s8_nested, Op::gemv, s8_nested_groups, scalar::s8_nested_gemv),
    row(StagedType::s8_row, Op::gemm, whole_row_groups, scalar::s8_row_gemm, staged_row),
    row(StagedType::s8_xblock, Op::gemm, block_groups, scalar::s8_xblock_gemm, staged_row),
    row(StagedType::s8_block, Op::gemm, block_groups, scalar::s8_block_gemm, staged_row),
    row(StagedType::f8_group, Op::gemm, whole_row_groups, scalar::f8_group_gemm),
    row(StagedType::f8_row, Op::gemm, whole_row_groups, scalar::f8_row_gemm, staged_floats),
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, scalar::quantize_bf16},
    {ActivationForm::s8, scalar::quantize_s8},
    {ActivationForm::bf16_tiles, scalar::quantize_bf16_tiles},
    {ActivationForm::s8_tiles, scalar::quantize_s8_tiles},
    {ActivationForm::e4m3, scalar::quantize_e4m3},
};

}  // namespace

constinit const IsaTable k_scalar_table = {.name = "scalar",
                                           .unavailable = scalar::unavailable,
                                           .kernels = kernels,
                                           .quantizers = quantizers,
                                           .attend = scalar::attend,
                                           .rows = &scalar::k_rows,
                                           .probes = {},
                                           .read = scalar::read_memory};

}  // namespace octalane
