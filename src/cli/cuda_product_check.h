// How far a product on a device is from fp64, on spread outputs.
#pragma once

#include <vector>

#include "core/status.h"
#include "cuda/product.h"
#include "cuda/staging.h"
#include "weights/restage.h"

namespace octalane::cli {

/// Relative L2 distances over the outputs looked at.
struct ProductErrors {
  double kernel = 0;  ///< to fp64 on the very operands that were multiplied
  double total = 0;   ///< to fp64 on fp32 activations and decoded weights
  double rest = 0;    ///< that distance over the norm of outputs without the channel `apart`; its own dwarfs the others
};

/// A product that was run with fp32 outputs [tokens][rows].
struct CheckedProduct {
  const PackedView& weights;
  const Restaged* restaged = nullptr;  ///< of lanes that re-encode
  bool rounded = false;                ///< exact weights were rounded to bfloat16
  const std::vector<float>& x;         ///< [tokens][columns]
  cuda::StagingForm form;
  const cuda::StagedTokens& staged;
  cuda::Address y = 0;
  int64_t apart = -1;  ///< a column of x that is far larger than all others; -1: none, rest is total
};

/// Reads up to 32 tokens by 32 rows of the output back. Errors: the device's.
Expected<ProductErrors> measure_errors(const cuda::Stream& stream, const CheckedProduct& product);

}  // namespace octalane::cli
