#include "kernels/avxvnni/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_avxvnni_table;

namespace {

using namespace avxvnni;

// Operations per clock of one core, 2 to a multiply-add: two vpdpbusd of 32 products make 128. For every 8 dots, a
// group of 32 columns drains in 3 more instructions on the same ports, a nested one in 1.9.
constexpr double kGroupRate = 128.0 * 8 / 11;
constexpr double kNestedRate = 128.0 * 8 / 9.9;

constexpr Kernel row(StagedType staged, Op op, double rate, int64_t (*scratch)(const Problem&),
                     void (*run)(const MatmulArgs&)) {
  return {.staged = staged,
          .op = op,
          .isa = "avxvnni",
          .tile = op == Op::gemm ? TileShape{kS8Tokens, 16, kS8PanelCols} : TileShape{1, 16, 32},
          .order = {.rows = 16},
          .form = ActivationForm::s8,
          .groups = staged == StagedType::s8_nested ? s8_nested_groups : s8_group_groups,
          .instruction = "vpdpbusd",
          .nominal_ops_per_clock = rate,
          .max_tokens = op == Op::gemv ? kGemvTokens : INT64_MAX,
          .supports = op == Op::gemm ? why_not_staged : why_not_plain,
          .scratch_bytes = scratch,
          .run = run};
}

constexpr Kernel kernels[] = {
    row(StagedType::s8_group, Op::gemm, kGroupRate, s8_group_gemm_scratch, s8_group_gemm),
    row(StagedType::s8_group, Op::gemv, kGroupRate, s8_group_gemv_scratch, s8_group_gemv),
    row(StagedType::s8_nested, Op::gemm, kNestedRate, s8_nested_gemm_scratch, s8_nested_gemm),
    row(StagedType::s8_nested, Op::gemv, kNestedRate, s8_nested_gemv_scratch, s8_nested_gemv),
};

}  // namespace

constinit const IsaTable k_avxvnni_table = {.name = "avxvnni",
                                            .extends = "avx2",
                                            .unavailable = unavailable,
                                            .kernels = kernels,
                                            .quantizers = {},
                                            .attend = nullptr,
                                            .rows = nullptr,
                                            .probes = probes,
                                            .read = nullptr};

}  // namespace octalane
