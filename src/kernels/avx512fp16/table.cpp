#include "kernels/avx512fp16/kernels.h"

namespace octalane {

extern const IsaTable k_avx512fp16_table;

constinit const IsaTable k_avx512fp16_table = {.name = "avx512fp16",
                                               .extends = "vnni",
                                               .unavailable = avx512fp16::unavailable,
                                               .kernels = {},
                                               .quantizers = {},
                                               .attend = nullptr,
                                               .probes = avx512fp16::probes,
                                               .read = nullptr};

}  // namespace octalane
