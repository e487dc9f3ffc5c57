#include "cuda/code.h"

namespace octalane::cuda {

#ifdef OCTALANE_CUDA_CODE
namespace {

alignas(64) constexpr unsigned char kProbe[] = {
#include "cuda_probe_code.inc"
};
alignas(64) constexpr unsigned char kGemm[] = {
#include "cuda_gemm_code.inc"
};
alignas(64) constexpr unsigned char kGemmMma[] = {
#include "cuda_gemm_mma_code.inc"
};
alignas(64) constexpr unsigned char kGemv[] = {
#include "cuda_gemv_code.inc"
};
alignas(64) constexpr unsigned char kActivations[] = {
#include "cuda_activations_code.inc"
};
alignas(64) constexpr unsigned char kAdditive[] = {
#include "cuda_additive_code.inc"
};
alignas(64) constexpr unsigned char kExperts[] = {
#include "cuda_experts_code.inc"
};

}  // namespace

std::span<const std::byte> probe_code() { return std::as_bytes(std::span(kProbe)); }
std::span<const std::byte> gemm_code() { return std::as_bytes(std::span(kGemm)); }
std::span<const std::byte> gemm_mma_code() { return std::as_bytes(std::span(kGemmMma)); }
std::span<const std::byte> gemv_code() { return std::as_bytes(std::span(kGemv)); }
std::span<const std::byte> activation_code() { return std::as_bytes(std::span(kActivations)); }
std::span<const std::byte> additive_code() { return std::as_bytes(std::span(kAdditive)); }
std::span<const std::byte> experts_code() { return std::as_bytes(std::span(kExperts)); }
#else
std::span<const std::byte> probe_code() { return {}; }
std::span<const std::byte> gemm_code() { return {}; }
std::span<const std::byte> gemm_mma_code() { return {}; }
std::span<const std::byte> gemv_code() { return {}; }
std::span<const std::byte> activation_code() { return {}; }
std::span<const std::byte> additive_code() { return {}; }
std::span<const std::byte> experts_code() { return {}; }
#endif

}  // namespace octalane::cuda
