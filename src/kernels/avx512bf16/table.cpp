#include "kernels/avx512bf16/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_avx512bf16_table;

namespace {

using namespace avx512bf16;

constexpr Kernel kernels[] = {
    {.staged = StagedType::bf16,
     .op = Op::gemm,
     .isa = "avx512bf16",
     .exactness = Exactness::order,
     .tile = {.m = kTokens, .n = kTiles * kRows, .k = kSlabSteps * 32},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_tiles,
     .groups = no_groups,
     .instruction = "vdpbf16ps",
     // As slow as where the instruction is split up: half of what two fused multiply-adds a clock make.
     .nominal_ops_per_clock = 32,
     .supports = why_not_staged,
     .scratch_bytes = bf16_scratch,
     .run = bf16_gemm},
};

}  // namespace

constinit const IsaTable k_avx512bf16_table = {.name = "avx512bf16",
                                               .extends = "vnni",
                                               .unavailable = avx512bf16::unavailable,
                                               .kernels = kernels,
                                               .probes = avx512bf16::probes};

}  // namespace octalane
