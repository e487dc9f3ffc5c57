// The maths of one row of activations, in an order of operations that depends on nothing but its length: a row comes
// out the same to the bit alone or in a batch, on any thread, on any machine.
#pragma once

#include <cstdint>

namespace octalane {

/// out = x / sqrt(mean(x^2) + epsilon) * weight. The mean is accumulated in fp64. `out` may be `x`.
void rms_norm(const float* x, const float* weight, float epsilon, int64_t n, float* out);

/// gate = silu(gate) * up, silu(z) = z / (1 + e^-z).
void silu_multiply(float* gate, const float* up, int64_t n);

/// x += y
void add(float* x, const float* y, int64_t n);

/// out = x as IEEE halves.
void store_halves(const float* x, int64_t n, uint16_t* out);

/// e^x to within 2 ulp for x in [-87, 88], clamped outside; NaN stays NaN.
float exp_f32(float x);

}  // namespace octalane
