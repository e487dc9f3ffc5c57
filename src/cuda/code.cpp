#include "cuda/code.h"

namespace octalane::cuda {

#ifdef OCTALANE_CUDA_CODE
namespace {

alignas(64) constexpr unsigned char kProbeCode[] = {
#include "cuda_probe_code.inc"
};
alignas(64) constexpr unsigned char kProductCode[] = {
#include "cuda_gemm_code.inc"
};

}  // namespace

std::span<const std::byte> probe_code() { return std::as_bytes(std::span(kProbeCode)); }
std::span<const std::byte> product_code() { return std::as_bytes(std::span(kProductCode)); }
#else
std::span<const std::byte> probe_code() { return {}; }
std::span<const std::byte> product_code() { return {}; }
#endif

}  // namespace octalane::cuda
