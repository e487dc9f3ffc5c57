#include "kernels/tiles/s8_nested.h"
#include "kernels/vnni/vectors.h"

namespace octalane::vnni {

void s8_nested_gemv(const MatmulArgs& args) { tiles::s8_nested_gemv<Vectors>(args); }
int64_t s8_nested_gemv_scratch(const Problem& problem) { return tiles::s8_nested_gemv_scratch<Vectors>(problem); }

}  // namespace octalane::vnni
