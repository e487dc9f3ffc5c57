#include "cuda/gemm_mma_args.h"
#include "cuda/product_args.h"

namespace octalane::cuda {

Status Products::multiply_by_mma(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                                 const Output& y, const Stream& stream, const ProductOptions& options) const {
  const Records& about = weights.about();
  GemmMmaArgs args{};
  set_operands(args, weights, x, options);
  args.x = pointer<const uint8_t>(x.x);
  args.y = pointer<void>(y.address);
  args.y_is_f32 = y.f32;
  args.y_stride = y.stride;
  args.words = about.layout.words;
  args.record_bytes = about.layout.bytes;
  const int64_t tiles = count_tiles(kernel, about, x, nullptr);
  return session_->enqueue(function(kernel), {static_cast<int>(tiles), kernel.threads, kernel.shared_bytes}, stream,
                           args);
}

}  // namespace octalane::cuda
