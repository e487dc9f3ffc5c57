// Least-squares fits that encoding is made of: which scale (and bias) lets a few values lie nearest to integer levels?
// Every fit minimises the plain squared error sum (x - scale * level - bias)^2. All are deterministic, on any compiler:
// sums run in a fixed order of eight lanes, and nothing is contracted.
#pragma once

#include <cstdint>

namespace octalane::fit {

/// Values larger than this would overflow the sums; every fp16-scaled format saturates far below it.
constexpr float largest = 0x1p40f;
/// Values that no fp16 scale can lift from zero.
constexpr float smallest = 0x1p-40f;

/// Values made safe to fit: NaN -> 0, magnitudes clamped to `limit`.
void sanitize(const float* values, int count, float limit, float* out);

/// The value of largest magnitude, signed; the first of equals.
float signed_extremum(const float* x, int count);

/// Rounds to the nearest integer, ties to even. Precondition: |value| < 2^22.
inline float round_even(float value) { return (value + 0x1.8p23f) - 0x1.8p23f; }

/// The scale (either sign) that fits x best with levels low..high, low < 0 <= high, |low| >= high. count % 8 == 0.
float scale_for_levels(const float* x, int count, int low, int high);

struct Affine {
  float scale = 0;
  float bias = 0;
};

/// Which biases a format can store.
enum class Bias : uint8_t { any, nonpositive };

/// The scale >= 0 and bias that fit x best with levels 0..top. count % 8 == 0.
Affine affine_for_levels(const float* x, int count, int top, Bias allowed);

/// The scale that fits x best with the trial's bias and the levels 0..top that x rounds to under the trial; the trial's
/// own when they are all 0. count % 8 == 0.
float scale_for_bias(const float* x, int count, Affine trial, int top);

/// level = round((x - bias) / scale) clamped to low..high; 0 (clamped) when the scale is 0. Stored as level - low.
void codes_for(const float* x, int count, Affine stored, int low, int high, uint8_t* codes);

/// The squared error of the codes that codes_for gives. count % 8 == 0.
float rounding_error(const float* x, int count, Affine stored, int low, int high);

/// fp32 -> fp16 bits, saturating at the largest finite half instead of going to infinity.
uint16_t saturated_f16(float value);

}  // namespace octalane::fit
