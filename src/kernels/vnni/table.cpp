#include "kernels/vnni/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_vnni_table;

namespace {

using namespace vnni;

// Operations per clock of one core, 2 to a multiply-add: two vpdpbusd of 64 products make 256, and a group of 32
// columns drains three more instructions on the same ports for every eight.
constexpr double kFmaRate = 64;
constexpr double kDotRate = 256.0 * 8 / 11;

int64_t no_scratch(const Problem&) { return 0; }

constexpr Kernel kernels[] = {
    {.staged = StagedType::bf16,
     .op = Op::gemm,
     .isa = "vnni",
     .tile = {.m = kBf16Tokens, .n = kGemmTiles * kRows, .k = kBf16PanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "vfmadd231ps",
     .nominal_ops_per_clock = kFmaRate,
     .supports = why_not_staged,
     .scratch_bytes = bf16_gemm_scratch,
     .run = bf16_gemm},
    {.staged = StagedType::bf16,
     .op = Op::gemv,
     .isa = "vnni",
     .tile = {.m = 1, .n = kRows, .k = 4},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "vfmadd231ps",
     .nominal_ops_per_clock = kFmaRate,
     .max_tokens = kGemvTokens,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = bf16_gemv},
    {.staged = StagedType::s8_group,
     .op = Op::gemm,
     .isa = "vnni",
     .tile = {.m = kS8Tokens, .n = kGemmTiles * kRows, .k = kS8PanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "vpdpbusd",
     .nominal_ops_per_clock = kDotRate,
     .supports = why_not_staged,
     .scratch_bytes = s8_group_gemm_scratch,
     .run = s8_group_gemm},
    {.staged = StagedType::s8_group,
     .op = Op::gemv,
     .isa = "vnni",
     .tile = {.m = 1, .n = kRows, .k = 32},
     .order = {.rows = kRows},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "vpdpbusd",
     .nominal_ops_per_clock = kDotRate,
     .max_tokens = kGemvTokens,
     .supports = why_not_staged,
     .scratch_bytes = s8_group_gemv_scratch,
     .run = s8_group_gemv},
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, quantize_bf16},
    {ActivationForm::s8, quantize_s8},
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
