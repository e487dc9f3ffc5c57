#include <cmath>

#include "core/attention.h"
#include "core/half.h"
#include "kernels/scalar/kernels.h"

namespace octalane::scalar {
namespace {

void attend_one(const AttendArgs& args, int64_t query) {
  const float* q = args.q + query * args.q_stride;
  float* out = args.out + query * args.out_stride;
  const int64_t seen = args.seen(query), stride = value_stride(args.head_dim);
  float highest = -INFINITY;
  for (int64_t p = 0; p < seen; ++p) {
    const uint16_t* key = args.k + p / kKeyBlock * kKeyBlock * args.head_dim + p % kKeyBlock;
    float dot = 0.0f;
    for (int64_t d = 0; d < args.head_dim; ++d) dot += q[d] * f16_to_f32(key[d * kKeyBlock]);
    args.scores[p] = args.scale * dot;
    highest = std::fmax(highest, args.scores[p]);
  }
  float total = 0.0f;
  for (int64_t p = 0; p < seen; ++p) {
    args.scores[p] = std::exp(args.scores[p] - highest);
    total += args.scores[p];
  }
  for (int64_t d = 0; d < args.head_dim; ++d) {
    float sum = 0.0f;
    for (int64_t p = 0; p < seen; ++p) sum += args.scores[p] * f16_to_f32(args.v[p * stride + d]);
    out[d] = seen > 0 ? sum / total : 0.0f;
  }
}

}  // namespace

void attend(const AttendArgs& args) {
  for (int64_t query = 0; query < args.queries; ++query) attend_one(args, query);
}

}  // namespace octalane::scalar
