// The table of product kernels: what each serves, and how it is launched.
#pragma once

#include <span>
#include <string>

#include "core/staged_type.h"
#include "cuda/devices.h"
#include "cuda/gemm_shapes.h"
#include "cuda/pack.h"

namespace octalane::cuda {

struct GemmKernel {
  const char* function;  ///< of device code
  StagedType staged;
  Code code;
  Form form;
  int words;         ///< scale words of a row and record: 1 for groups of 64 and more, 2 for 32, 4 for 16; at most
  int group;         ///< s8.group, f8.group: columns of a scale; else 0
  Drain drain;       ///< by wgmma, but s8.group and f8.group; else none
  int rows, tokens;  ///< of a tile
  int threads, shared_bytes;
  bool minima = false;  ///< s8.nested: for weights with a sub-minimum
  int least_words = 0;  ///< by mma.sync: from this to `words`; 0: `words` alone, by wgmma

  /// On any device of sm_80 and later; else wgmma, on sm_90a alone.
  bool by_mma() const { return least_words > 0; }
};

std::span<const GemmKernel> gemm_kernels();

/// "s8.row_gemm_128x256x128_cuda-nibble-g32": lane, tile of rows, tokens and columns, code, form, group. By mma.sync
/// "s8.row_gemm_128x128x128_mma-nibble-g32": the smallest group of those served.
std::string name(const GemmKernel& kernel);

/// Why the kernel cannot multiply these weights; empty = it can.
std::string why_not(const GemmKernel& kernel, const Records& weights);

/// Why there is no such kernel on this device; empty = there is.
std::string why_not(const GemmKernel& kernel, const DeviceInfo& device);

}  // namespace octalane::cuda
