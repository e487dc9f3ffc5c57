#include "kernels/avx512bf16/kernels.h"

namespace octalane {

extern const IsaTable k_avx512bf16_table;

constinit const IsaTable k_avx512bf16_table = {.name = "avx512bf16",
                                               .extends = "vnni",
                                               .unavailable = avx512bf16::unavailable,
                                               .kernels = {},
                                               .quantizers = {},
                                               .attend = nullptr,
                                               .probes = avx512bf16::probes,
                                               .read = nullptr};

}  // namespace octalane
