#include <cmath>

#include "core/half.h"
#include "kernels/scalar/kernels.h"

namespace octalane::scalar {

void attend(const AttendArgs& args) {
  float highest = -INFINITY;
  for (int64_t p = 0; p < args.positions; ++p) {
    const uint16_t* key = args.k + p * args.kv_stride;
    float dot = 0.0f;
    for (int64_t d = 0; d < args.head_dim; ++d) dot += args.q[d] * f16_to_f32(key[d]);
    args.scores[p] = args.scale * dot;
    highest = std::fmax(highest, args.scores[p]);
  }
  float total = 0.0f;
  for (int64_t p = 0; p < args.positions; ++p) {
    args.scores[p] = std::exp(args.scores[p] - highest);
    total += args.scores[p];
  }
  for (int64_t d = 0; d < args.head_dim; ++d) {
    float sum = 0.0f;
    for (int64_t p = 0; p < args.positions; ++p) sum += args.scores[p] * f16_to_f32(args.v[p * args.kv_stride + d]);
    args.out[d] = args.positions > 0 ? sum / total : 0.0f;
  }
}

}  // namespace octalane::scalar
