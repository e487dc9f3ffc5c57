#include "kernels/vnni/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_vnni_table;

namespace {

using namespace vnni;

// Operations per clock of one core, 2 to a multiply-add: two vpdpbusd of 64 products make 256, two FMA of 16 lanes 64.
// For every 8 dots, a group of 32 columns drains in 3 more instructions on the same ports, a nested one in 1.9.
constexpr double kFmaRate = 64;
constexpr double kGroupRate = 256.0 * 8 / 11;
constexpr double kNestedRate = 256.0 * 8 / 9.9;

int64_t no_scratch(const Problem&) { return 0; }

/// Everything but what differs from kernel to kernel.
constexpr Kernel row(StagedType staged, Op op, TileShape tile, double rate, int64_t (*scratch)(const Problem&),
                     void (*run)(const MatmulArgs&)) {
  const bool bf16 = staged == StagedType::bf16;
  return {.staged = staged,
          .op = op,
          .isa = "vnni",
          .tile = tile,
          .order = {.rows = kRows},
          .form = bf16 ? ActivationForm::bf16_as_f32 : ActivationForm::s8,
          .groups = bf16                              ? no_groups
                    : staged == StagedType::s8_nested ? s8_nested_groups
                                                      : s8_group_groups,
          .instruction = bf16 ? "vfmadd231ps" : "vpdpbusd",
          .nominal_ops_per_clock = rate,
          .max_tokens = op == Op::gemm ? INT64_MAX
                        : bf16         ? kGemvTokens
                                       : kGemvTokens * kGemvBlocks,
          .supports = op == Op::gemm ? why_not_staged : why_not_plain,
          .scratch_bytes = scratch,
          .run = run};
}

constexpr TileShape kBf16Tile = {.m = kBf16Tokens, .n = kGemmTiles * kRows, .k = kBf16PanelCols};
constexpr TileShape kS8Tile = {.m = kS8Tokens, .n = kGemmTiles * kRows, .k = kS8PanelCols};

constexpr Kernel kernels[] = {
    row(StagedType::bf16, Op::gemm, kBf16Tile, kFmaRate, bf16_gemm_scratch, bf16_gemm),
    row(StagedType::bf16, Op::gemv, {1, kRows, 4}, kFmaRate, no_scratch, bf16_gemv),
    row(StagedType::s8_group, Op::gemm, kS8Tile, kGroupRate, s8_group_gemm_scratch, s8_group_gemm),
    row(StagedType::s8_group, Op::gemv, {1, kRows, 32}, kGroupRate, s8_group_gemv_scratch, s8_group_gemv),
    row(StagedType::s8_nested, Op::gemm, kS8Tile, kNestedRate, s8_nested_gemm_scratch, s8_nested_gemm),
    row(StagedType::s8_nested, Op::gemv, {1, kRows, 32}, kNestedRate, s8_nested_gemv_scratch, s8_nested_gemv),
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, quantize_bf16},
    {ActivationForm::s8, quantize_s8},
    {ActivationForm::bf16_tiles, quantize_bf16_tiles},
    {ActivationForm::s8_tiles, quantize_s8_tiles},
};

}  // namespace

constinit const IsaTable k_vnni_table = {.name = "vnni",
                                         .extends = "avx2",
                                         .unavailable = unavailable,
                                         .kernels = kernels,
                                         .quantizers = quantizers,
                                         .attend = attend,
                                         .rows = &k_rows,
                                         .probes = probes,
                                         .read = read_memory};

}  // namespace octalane
