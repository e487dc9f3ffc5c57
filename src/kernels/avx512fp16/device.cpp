#include <cpuid.h>

#include "kernels/avx512fp16/kernels.h"

namespace octalane::avx512fp16 {
namespace {

/// Clang 14 has no name for it in its builtin.
bool has_fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 23 & 1u) != 0;
}

}  // namespace

std::string unavailable() {
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx512f")) return "the processor or the operating system lacks AVX-512";
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vl")) {
    return "the processor lacks AVX-512 VNNI, which it extends";
  }
  if (!has_fp16()) return "the processor lacks AVX-512 FP16";
  return {};
}

}  // namespace octalane::avx512fp16
