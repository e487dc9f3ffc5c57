#include "kernels/avx2/kernels.h"
#include "kernels/weight_support.h"

namespace octalane {

extern const IsaTable k_avx2_table;

namespace {

using namespace avx2;

int64_t no_scratch(const Problem&) { return 0; }
int64_t bf16_panel(const Problem&) { return kBf16PanelBytes; }
int64_t code_panel(const Problem&) { return sizeof(CodePanel); }

// Operations per clock of one core, 2 to a multiply-add: two FMA of 8 lanes make 32. An int8 product is a maddubs of
// 32, an add and a third of an instruction to widen and drain, on three vector ports: 64 * 3 / 2.3.
constexpr double kFmaRate = 32;
constexpr double kMaddubsRate = 80;
// Eight weights are two loads from the codebooks, some two clocks; or two from the tables of sums, a scalar at a time.
// Of few tokens, like all gemv: the gemm computes whole tiles.
constexpr double kCodewordRate = 32;
constexpr double kSumsRate = 16;

constexpr Kernel restaged_row(StagedType staged, ActivationGroups (*groups)(const WeightSpec&),
                              void (*run)(const MatmulArgs&)) {
  return {.staged = staged,
          .op = Op::gemm,
          .isa = "avx2",
          .tile = {.m = kS8Tokens, .n = kRows, .k = kCodePanelCols},
          .order = {.rows = kRows},
          .form = ActivationForm::s8,
          .groups = groups,
          .instruction = "vpmaddubsw",
          .nominal_ops_per_clock = kMaddubsRate,
          .supports = why_not_staged,
          .scratch_bytes = s8_restaged_scratch,
          .run = run};
}

constexpr Kernel codebook_row(const char* variant, TileShape tile, double rate, int64_t max_tokens,
                              int64_t (*scratch)(const Problem&), void (*run)(const MatmulArgs&)) {
  return {.staged = StagedType::bf16,
          .op = Op::gemv,
          .isa = "avx2",
          .exactness = Exactness::unrounded,
          .tile = tile,
          .order = {.rows = kRows},
          .form = ActivationForm::bf16_as_f32,
          .groups = no_groups,
          .variant = variant,
          .instruction = "vfmadd231ps",
          .nominal_ops_per_clock = rate,
          .max_tokens = max_tokens,
          .supports = why_not_codebook,
          .scratch_bytes = scratch,
          .run = run};
}

constexpr Kernel kernels[] = {
    {.staged = StagedType::bf16,
     .op = Op::gemm,
     .isa = "avx2",
     .tile = {.m = kBf16Tokens, .n = kRows, .k = kBf16PanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::bf16_as_f32,
     .groups = no_groups,
     .instruction = "vfmadd231ps",
     .nominal_ops_per_clock = kFmaRate,
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
     .nominal_ops_per_clock = kFmaRate,
     .max_tokens = kGemvTokens,
     .supports = why_not_staged,
     .scratch_bytes = no_scratch,
     .run = bf16_gemv},
    {.staged = StagedType::s8_group,
     .op = Op::gemm,
     .isa = "avx2",
     .tile = {.m = kS8Tokens, .n = kRows, .k = kCodePanelCols},
     .order = {.rows = kRows},
     .form = ActivationForm::s8,
     .groups = s8_group_groups,
     .instruction = "vpmaddubsw",
     .nominal_ops_per_clock = kMaddubsRate,
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
     .nominal_ops_per_clock = kMaddubsRate,
     .max_tokens = kGemvTokens,
     .supports = why_not_plain,
     .scratch_bytes = no_scratch,
     .run = s8_group_gemv},
    codebook_row("codewords", {.m = 1, .n = kRows, .k = 8}, kCodewordRate, kCodewordTokens, no_scratch, codebook_gemv),
    codebook_row("sums", {.m = 1, .n = kRows, .k = 64}, kSumsRate, 1, codebook_table_scratch, codebook_table_gemv),
    restaged_row(StagedType::s8_row, whole_row_groups, s8_row_gemm),
    restaged_row(StagedType::s8_xblock, block_groups, s8_xblock_gemm),
    restaged_row(StagedType::s8_block, block_groups, s8_block_gemm),
};

constexpr Quantizer quantizers[] = {
    {ActivationForm::bf16_as_f32, quantize_bf16},
    {ActivationForm::s8, quantize_s8},
};

}  // namespace

constinit const IsaTable k_avx2_table = {.name = "avx2",
                                         .unavailable = unavailable,
                                         .kernels = kernels,
                                         .quantizers = quantizers,
                                         .attend = attend,
                                         .rows = &k_rows,
                                         .probes = probes,
                                         .read = read_memory};

}  // namespace octalane
