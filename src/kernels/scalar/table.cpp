#include "kernels/scalar/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_scalar_table;

namespace {

int64_t no_scratch(const Problem&) { return 0; }
ActivationGroups no_groups(const WeightSpec&) { return {}; }

// One fused multiply-add takes about 12 clocks in a chain of double conversions, an int8 product about 1.
constexpr Kernel kernels[] = {
    {.staged = StagedType::bf16,
     .op = Op::gemm,
     .isa = "scalar",
     .tile = {.m = 1, .n = 1, .k = 32},
     .order = {.rows = 1},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "mulsd+addsd",
     .nominal_ops_per_clock = 0.15,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = scalar::bf16_gemm},
    {.staged = StagedType::bf16,
     .op = Op::gemv,
     .isa = "scalar",
     .tile = {.m = 1, .n = 1, .k = 32},
     .order = {.rows = 1},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "mulsd+addsd",
     .nominal_ops_per_clock = 0.15,
     .max_tokens = 1,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = scalar::bf16_gemv},
    {.staged = StagedType::s8_group,
     .op = Op::gemm,
     .isa = "scalar",
     .tile = {.m = 1, .n = 1, .k = 32},
     .order = {.rows = 1},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "imul",
     .nominal_ops_per_clock = 1,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = scalar::s8_group_gemm},
    {.staged = StagedType::s8_group,
     .op = Op::gemv,
     .isa = "scalar",
     .tile = {.m = 1, .n = 1, .k = 32},
     .order = {.rows = 1},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "imul",
     .nominal_ops_per_clock = 1,
     .max_tokens = 1,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = scalar::s8_group_gemv},
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, scalar::quantize_bf16},
    {ActivationForm::s8, scalar::quantize_s8},
};

}  // namespace

constinit const IsaTable k_scalar_table = {.name = "scalar",
                                           .unavailable = scalar::unavailable,
                                           .kernels = kernels,
                                           .quantizers = quantizers,
                                           .attend = scalar::attend};

}  // namespace octalane
