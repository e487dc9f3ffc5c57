#include <cpuid.h>

#include "kernels/avx2/kernels.h"

namespace octalane::avx2 {
namespace {

bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
}

}  // namespace

std::string unavailable() {
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx2")) return "the processor or the operating system lacks AVX2";
  if (!__builtin_cpu_supports("fma")) return "the processor lacks FMA";
  if (!has_f16c()) return "the processor lacks F16C";
  return {};
}

}  // namespace octalane::avx2
