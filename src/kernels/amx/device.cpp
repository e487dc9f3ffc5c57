#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/amx/panels.h"

namespace octalane::amx {
namespace {

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of arch_prctl
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA

std::string lacks_instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return "the processor lacks AMX";
  if ((edx >> 24 & 1u) == 0) return "the processor lacks AMX-TILE";
  if ((edx >> 25 & 1u) == 0) return "the processor lacks AMX-INT8";
  if ((edx >> 22 & 1u) == 0) return "the processor lacks AMX-BF16";
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax >> 5 & 1u) == 0) {
    return "the processor lacks AVX512-BF16";
  }
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vnni")) {
    return "the processor or the operating system lacks AVX-512 VNNI, which it extends";
  }
  return {};
}

int64_t padded(const Problem& problem) {
  const RecordLayout layout = record_layout(problem.weights, {.rows = kRows});
  return (problem.cols + layout.cols - 1) / layout.cols * layout.cols;
}

int64_t bytes(const Panels& cut) { return cut.panel_bytes() + cut.accumulator_bytes() + cut.staging_bytes(); }

}  // namespace

bool has_fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 21 & 1u) != 0;
}

std::string unavailable() {
  static const std::string why = [] {
    std::string lacking = lacks_instructions();
    if (lacking.empty() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
      lacking = "the operating system refuses the tile registers";
    }
    return lacking;
  }();
  return why;
}

int64_t bf16_scratch(const Problem& problem) { return bytes(bf16_panels(problem.tokens, padded(problem))); }
int64_t s8_group_scratch(const Problem& problem) {
  return s8_group_cut(problem.tokens, padded(problem), problem.weights.scale.group).bytes();
}
int64_t s8_row_scratch(const Problem& problem) { return bytes(s8_row_panels(problem.tokens, padded(problem))); }
int64_t s8_block_scratch(const Problem& problem) {
  const int64_t token_scales = (problem.cols + 255) / 256 * kStripTokens * static_cast<int64_t>(sizeof(float));
  return bytes(s8_block_panels(problem.tokens, padded(problem))) + 2 * kBlock + token_scales;
}

}  // namespace octalane::amx
