#include "kernels/avxvnni/vectors.h"
#include "kernels/tiles/s8_nested.h"

namespace octalane::avxvnni {

void s8_nested_gemv(const MatmulArgs& args) { tiles::s8_nested_gemv<Vectors>(args); }
int64_t s8_nested_gemv_scratch(const Problem& problem) { return tiles::s8_nested_gemv_scratch<Vectors>(problem); }

}  // namespace octalane::avxvnni
