#include "kernels/avx2/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_avx2_table;

namespace {

using namespace avx2;

int64_t no_scratch(const Problem&) { return 0; }
int64_t bf16_panel(const Problem&) { return kBf16PanelBytes; }
int64_t code_panel(const Problem&) { return sizeof(CodePanel); }
ActivationGroups no_groups(const WeightSpec&) { return {}; }

// Per clock and core, 2 operations to a multiply-add: two FMA of 8 lanes make 32; int8 needs a maddubs of 32 products,
// an add, and about a third of an instruction to drain, on three vector ports, so 2 * 32 * 3 / 2.4 = 80. A gemv of one
// token decodes 8 weights in 2.5 clocks for bf16 and 32 in about 1.2 for int8.
constexpr Kernel kernels[] = {
    {.staged = StagedType::bf16,
     .op = Op::gemm,
     .isa = "avx2",
     .tile = {.m = kBf16Tokens, .n = kRows, .k = kPanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "vfmadd231ps",
     .nominal_ops_per_clock = 28,
     .supports = why_not_staged,
     .scratch_bytes = bf16_panel,
     .run = bf16_gemm},
    {.staged = StagedType::bf16,
     .op = Op::gemv,
     .isa = "avx2",
     .tile = {.m = 1, .n = kRows, .k = 4},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "vfmadd231ps",
     .nominal_ops_per_clock = 28,
     .max_tokens = kGemvTokens,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = bf16_gemv},
    {.staged = StagedType::s8_group,
     .op = Op::gemm,
     .isa = "avx2",
     .tile = {.m = kS8Tokens, .n = kRows, .k = kPanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "vpmaddubsw",
     .nominal_ops_per_clock = 80,
     .supports = why_not_staged,
     .scratch_bytes = code_panel,
     .run = s8_group_gemm},
    {.staged = StagedType::s8_group,
     .op = Op::gemv,
     .isa = "avx2",
     .tile = {.m = 1, .n = kRows, .k = 16},
     .order = {.rows = kRows},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "vpmaddubsw",
     .nominal_ops_per_clock = 80,
     .max_tokens = kGemvTokens,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = s8_group_gemv},
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, quantize_bf16},
    {ActivationForm::s8, quantize_s8},
};

}  // namespace

constinit const IsaTable k_avx2_table = {
    .name = "avx2", .unavailable = unavailable, .kernels = kernels, .quantizers = quantizers, .attend = attend};

}  // namespace octalane
