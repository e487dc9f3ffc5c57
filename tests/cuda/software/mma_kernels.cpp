#include "cuda/software/mma_kernels.h"

#include "cuda/device/gemm_mma.cu"
#include "cuda/gemm_table.h"

namespace octalane::test {

namespace {

Readable readable_by(const cuda::GemmKernel& kernel, const cuda::GemmMmaArgs& args) {
  const int64_t columns = int64_t{args.panels} * cuda::kPanelCols, blocks = (args.panels + 1) / 2;
  const bool blocked = kernel.staged == StagedType::s8_xblock || kernel.staged == StagedType::s8_block ||
                       kernel.staged == StagedType::s8_nested;
  const int64_t groups = kernel.group != 0 ? columns / kernel.group : blocked ? blocks : 0;
  Readable all;
  const auto add = [&](const void* from, int64_t bytes) {
    all.emplace_back(static_cast<const std::byte*>(from), static_cast<size_t>(bytes));
  };
  add(args.x, args.tokens * columns * (kernel.staged == StagedType::bf16 ? 2 : 1));
  add(args.records, int64_t{args.padded_rows} / cuda::kRecordRows * columns / cuda::kRecordCols * args.record_bytes);
  if (kernel.form == cuda::Form::nested) add(args.supers, args.padded_rows * blocks * 4);
  add(args.token_scales, groups * args.padded_tokens * 4);
  if (kernel.group != 0) add(args.token_sums, groups * args.padded_tokens * 4);
  if (kernel.minima) add(args.token_minima, blocks * args.padded_tokens * 32);
  if (kernel.staged == StagedType::s8_block) add(args.weight_scales, blocks * args.padded_rows * 4);
  return all;
}

}  // namespace

std::string run_mma_kernel(const std::string& function, const cuda::GemmMmaArgs& args, int blocks) {
  using Kernel = void (*)(cuda::GemmMmaArgs);
  const std::pair<const char*, Kernel> kernels[] = {
#undef GEMM
#define GEMM(function, ...) {#function, &cuda::function},
      OCTALANE_MMA_GEMMS(GEMM)};
  for (const cuda::GemmKernel& row : cuda::gemm_kernels()) {
    for (const auto& [name, kernel] : kernels) {
      if (row.function != function || name != function) continue;
      const Readable readable = readable_by(row, args);
      std::string fault;
      for (int block = 0; block < blocks && fault.empty(); ++block)
        fault = run_block(block, row.threads, row.shared_bytes, readable, [&, run = kernel] { run(args); });
      return fault;
    }
  }
  return "no such kernel: " + function;
}

}  // namespace octalane::test
