#include "kernels/vnni/kernels.h"

namespace octalane::vnni {

std::string unavailable() {
  // The builtins also ask the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx512f")) return "the processor or the operating system lacks AVX-512";
  if (!__builtin_cpu_supports("avx512bw")) return "the processor lacks AVX-512 BW";
  if (!__builtin_cpu_supports("avx512dq")) return "the processor lacks AVX-512 DQ";
  if (!__builtin_cpu_supports("avx512vl")) return "the processor lacks AVX-512 VL";
  if (!__builtin_cpu_supports("avx512vnni")) return "the processor lacks AVX-512 VNNI";
  return {};
}

}  // namespace octalane::vnni
