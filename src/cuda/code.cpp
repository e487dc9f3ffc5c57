#include "cuda/code.h"

namespace octalane::cuda {
namespace {

#ifdef OCTALANE_CUDA_CODE
alignas(64) constexpr unsigned char kProbeCode[] = {
#include "cuda_probe_code.inc"
};
#endif

}  // namespace

std::span<const std::byte> probe_code() {
#ifdef OCTALANE_CUDA_CODE
  return std::as_bytes(std::span(kProbeCode));
#else
  return {};
#endif
}

}  // namespace octalane::cuda
