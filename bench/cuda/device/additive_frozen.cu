// The kernels of frozen_list.h. As bench/additive/frozen.h is for AVX2: decoding again for each 16 tokens, not to be
// made faster in that respect; all else is the library's.
#include "cuda/device/additive.cuh"
#include "cuda/frozen_list.h"

namespace octalane::cuda {

#define ADDITIVE(name, ...)                                                             \
  extern "C" __global__ void __launch_bounds__(AdditiveShape<__VA_ARGS__>::kThreads, 1) \
      name(const __grid_constant__ AdditiveArgs args) {                                 \
    additive<AdditiveShape<__VA_ARGS__>>(args);                                         \
  }
OCTALANE_FROZEN(ADDITIVE)
OCTALANE_VARIANTS(ADDITIVE)

}  // namespace octalane::cuda
