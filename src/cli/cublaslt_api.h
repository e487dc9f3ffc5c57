// cuBLASLt, opened at run time. Its ABI as the documentation of cuBLAS 12 and 13 has it, as far as a plain product
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/driver.h"

namespace octalane::cli {

using LtHandle = struct LtState*;
using LtMatmulDesc = struct LtMatmulDescState*;
using LtLayout = struct LtLayoutState*;
using LtPreference = struct LtPreferenceState*;

enum class LtType : int { f32 = 0, s8 = 3, s32 = 10, bf16 = 14, e4m3 = 28 };  ///< cudaDataType
enum class LtCompute : int { f32 = 68, s32 = 72 };                            ///< cublasComputeType_t
enum class LtDescAttribute : int { transpose_a = 3, scale_of_a = 17, scale_of_b = 18, fast_accumulation = 25 };
enum class LtPreferenceAttribute : int { most_workspace_bytes = 1 };
enum class LtAlgoAttribute : int { id = 0, tile = 1, split_k = 2, swizzle = 4, custom = 5, stages = 6, cluster = 8 };

/// cublasLtMatmulAlgo_t.
struct LtAlgo {
  uint64_t data[8] = {};
};

/// cublasLtMatmulHeuristicResult_t.
struct LtHeuristic {
  LtAlgo algo;
  size_t workspace_bytes = 0;
  int status = 0;
  float waves = 0;
  int reserved[4] = {};
};
static_assert(sizeof(LtHeuristic) == 96);

/// The functions under their own names without "cublasLt". Answers are 0 when all is well.
struct LtApi {
  int (*create)(LtHandle*) = nullptr;
  int (*destroy)(LtHandle) = nullptr;
  size_t (*get_version)() = nullptr;
  const char* (*get_status_string)(int status) = nullptr;
  int (*matmul_desc_create)(LtMatmulDesc*, LtCompute, LtType scale) = nullptr;
  int (*matmul_desc_destroy)(LtMatmulDesc) = nullptr;
  int (*matmul_desc_set_attribute)(LtMatmulDesc, LtDescAttribute, const void* value, size_t bytes) = nullptr;
  int (*matrix_layout_create)(LtLayout*, LtType, uint64_t rows, uint64_t cols, int64_t stride) = nullptr;
  int (*matrix_layout_destroy)(LtLayout) = nullptr;
  int (*matmul_preference_create)(LtPreference*) = nullptr;
  int (*matmul_preference_destroy)(LtPreference) = nullptr;
  int (*matmul_preference_set_attribute)(LtPreference, LtPreferenceAttribute, const void* value,
                                         size_t bytes) = nullptr;
  int (*matmul_algo_get_heuristic)(LtHandle, LtMatmulDesc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtPreference,
                                   int wanted, LtHeuristic* results, int* count) = nullptr;
  int (*matmul_algo_config_get_attribute)(const LtAlgo*, LtAlgoAttribute, void* value, size_t bytes,
                                          size_t* written) = nullptr;
  int (*matmul)(LtHandle, LtMatmulDesc, const void* alpha, const void* a, LtLayout, const void* b, LtLayout,
                const void* beta, const void* c, LtLayout, void* d, LtLayout, const LtAlgo*, void* workspace,
                size_t workspace_bytes, cuda::StreamHandle) = nullptr;
};

/// Opens `path`; when it is empty, what OCTALANE_CUBLASLT names; else libcublasLt of CUDA 13, 12 or any.
Expected<LtApi> load_cublaslt(const std::string& path = {});

/// An error when the answer is one: "cublaslt: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED".
Status check(const LtApi& api, int status, std::string_view call);

}  // namespace octalane::cli
