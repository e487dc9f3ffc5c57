#include "kernels/tiles/s8_group.h"
#include "kernels/vnni/vectors.h"

namespace octalane::vnni {

void s8_group_gemm(const MatmulArgs& args) { tiles::s8_group_gemm<Vectors>(args); }
int64_t s8_group_gemm_scratch(const Problem& problem) { return tiles::s8_group_gemm_scratch<Vectors>(problem); }

}  // namespace octalane::vnni
