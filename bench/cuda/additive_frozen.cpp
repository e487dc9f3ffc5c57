#include "cuda/additive_frozen.h"

#include "cuda/frozen_list.h"

namespace octalane::bench {
namespace {

#ifdef OCTALANE_CUDA_CODE
alignas(64) constexpr unsigned char kCode[] = {
#include "cuda_additive_frozen_code.inc"
};
#endif

#define ADDITIVE(name, ...) cuda::additive_kernel<cuda::AdditiveShape<__VA_ARGS__>>(#name),
constexpr cuda::AdditiveKernel kKernels[] = {OCTALANE_FROZEN(ADDITIVE) OCTALANE_VARIANTS(ADDITIVE)};
#undef ADDITIVE

}  // namespace

std::span<const std::byte> frozen_code() {
#ifdef OCTALANE_CUDA_CODE
  return std::as_bytes(std::span(kCode));
#else
  return {};
#endif
}

std::span<const cuda::AdditiveKernel> frozen_kernels() { return kKernels; }

}  // namespace octalane::bench
