#include <cpuid.h>

#include "kernels/avxvnni/kernels.h"

namespace octalane::avxvnni {

std::string unavailable() {
  // The builtins also ask the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx2")) return "the processor or the operating system lacks AVX2";
  if (!__builtin_cpu_supports("fma")) return "the processor lacks FMA";
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 29 & 1u) == 0) return "the processor lacks F16C";
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax >> 4 & 1u) == 0) {
    return "the processor lacks AVX-VNNI";
  }
  return {};
}

}  // namespace octalane::avxvnni
