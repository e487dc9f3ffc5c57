// The product kernels, by name.
#include "cuda/device/gemm_group.cuh"
#include "cuda/device/gemm_nested.cuh"
#include "cuda/gemm_list.h"

namespace octalane::cuda {

#define GEMM(name, operand, code, form, words, drain, ...)                                                \
  extern "C" __global__ void __launch_bounds__(                                                           \
      GemmShape<Operand::operand, Code::code, Form::form, words, Drain::drain, __VA_ARGS__>::kThreads, 1) \
      name(const __grid_constant__ GemmArgs args) {                                                       \
    gemm<GemmShape<Operand::operand, Code::code, Form::form, words, Drain::drain, __VA_ARGS__>>(args);    \
  }
#define GROUP_GEMM(name, operand, code, form, ...)                                        \
  extern "C" __global__ void __launch_bounds__(                                           \
      GroupShape<Operand::operand, Code::code, Form::form, __VA_ARGS__>::kThreads, 1)     \
      name(const __grid_constant__ GemmArgs args) {                                       \
    gemm_groups<GroupShape<Operand::operand, Code::code, Form::form, __VA_ARGS__>>(args); \
  }
#define NESTED_GEMM(name, code, ...)                                                              \
  extern "C" __global__ void __launch_bounds__(NestedShape<Code::code, __VA_ARGS__>::kThreads, 1) \
      name(const __grid_constant__ GemmArgs args) {                                               \
    gemm_nested<NestedShape<Code::code, __VA_ARGS__>>(args);                                      \
  }
OCTALANE_GEMMS(GEMM, GROUP_GEMM, NESTED_GEMM)

}  // namespace octalane::cuda
