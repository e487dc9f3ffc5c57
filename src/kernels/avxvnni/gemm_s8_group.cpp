#include "kernels/avxvnni/vectors.h"
#include "kernels/tiles/s8_group.h"

namespace octalane::avxvnni {

void s8_group_gemm(const MatmulArgs& args) { tiles::s8_group_gemm<Vectors>(args); }
int64_t s8_group_gemm_scratch(const Problem& problem) { return tiles::s8_group_gemm_scratch<Vectors>(problem); }

}  // namespace octalane::avxvnni
