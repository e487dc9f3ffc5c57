#include "core/row_math.h"
#include "kernels/vnni/kernels.h"

namespace octalane::vnni {

const RowMath k_rows = {
    .rms_norm = [](const float* x, const float* weight, float epsilon, int64_t n,
                   float* out) { rms_norm(x, weight, epsilon, n, out); },
    .silu_multiply = [](float* gate, const float* up, int64_t n) { silu_multiply(gate, up, n); },
    .add = [](float* x, const float* y, int64_t n) { add(x, y, n); },
};

}  // namespace octalane::vnni
