#include "cli/cublaslt_api.h"

#include <cstdlib>
#include <vector>

#include "cuda/shared_library.h"

namespace octalane::cli {
namespace {

std::vector<std::string> names(const std::string& path) {
  if (!path.empty()) return {path};
  const char* const variable = std::getenv("OCTALANE_CUBLASLT");
  if (variable != nullptr && *variable != 0) return {variable};
  return {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
}

}  // namespace

Expected<LtApi> load_cublaslt(const std::string& path) {
  Expected<cuda::SharedLibrary> from = fail("cublaslt: no name");
  for (const std::string& name : names(path)) {
    from = cuda::SharedLibrary::open(name.c_str(), "NVIDIA's cuBLASLt,");
    if (from) break;
  }
  if (!from) return fail_with(from);
  LtApi api;
  from->bind(api.create, "cublasLtCreate");
  from->bind(api.destroy, "cublasLtDestroy");
  from->bind(api.get_version, "cublasLtGetVersion");
  from->bind(api.get_status_string, "cublasLtGetStatusString");
  from->bind(api.matmul_desc_create, "cublasLtMatmulDescCreate");
  from->bind(api.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  from->bind(api.matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  from->bind(api.matrix_layout_create, "cublasLtMatrixLayoutCreate");
  from->bind(api.matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
  from->bind(api.matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  from->bind(api.matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  from->bind(api.matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  from->bind(api.matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  from->bind(api.matmul_algo_config_get_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  from->bind(api.matmul, "cublasLtMatmul");
  if (const Status complete = from->complete("cuBLASLt of CUDA 12 or newer"); !complete) return fail_with(complete);
  return api;
}

Status check(const LtApi& api, int status, std::string_view call) {
  if (status == 0) return {};
  const char* const text = api.get_status_string(status);
  return fail("cublaslt: {}: {}", call, text != nullptr ? std::string(text) : fmt::format("status {}", status));
}

}  // namespace octalane::cli
