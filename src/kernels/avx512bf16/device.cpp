#include "kernels/avx512bf16/kernels.h"

namespace octalane::avx512bf16 {

std::string unavailable() {
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx512f")) return "the processor or the operating system lacks AVX-512";
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vl")) {
    return "the processor lacks AVX-512 VNNI, which it extends";
  }
  if (!__builtin_cpu_supports("avx512bf16")) return "the processor lacks AVX-512 BF16";
  return {};
}

}  // namespace octalane::avx512bf16
