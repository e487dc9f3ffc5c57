// Scalar conversions between fp32 and the 16-bit and smaller floats, exact or rounded once to nearest-even.
// Bit-exact with IEEE 754 binary16; bfloat16 is the upper half of binary32; E8M0 and E4M3 as in the OCP MX
// specification v1.0.
#pragma once

#include <bit>
#include <cstdint>

#include "core/inline.h"

namespace octalane {

/// bfloat16 bits -> fp32, exact.
OCTALANE_INLINE float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

/// fp32 -> bfloat16 bits, round to nearest-even; a NaN stays a (quiet) NaN.
OCTALANE_INLINE uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// fp32 rounded to the nearest bfloat16 value, kept as fp32.
OCTALANE_INLINE float round_to_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

/// binary16 bits -> fp32, exact (NaN payloads are kept, signalling NaNs made quiet as F16C does).
OCTALANE_INLINE float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/// fp32 -> binary16 bits, round to nearest-even, overflow to infinity; a NaN stays a (quiet) NaN.
OCTALANE_INLINE uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to 65536 or is infinite
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds the value to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

/// E4M3 (fn) -> fp32, exact: bias 7, subnormal steps of 2^-9, largest 448; 0x7F and 0xFF are NaN, there is no infinity.
OCTALANE_INLINE float e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t exponent = (bits >> 3) & 15u, mantissa = bits & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-9f));
  return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
}

/// fp32 -> E4M3 (fn), round to nearest-even, saturating at 448; a NaN stays NaN.
OCTALANE_INLINE uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // 448 and more
  if (magnitude < 0x3C800000u) {  // below 2^-6: adding 2^14 rounds the value to a multiple of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u) - (120u << 23);
  return static_cast<uint8_t>(sign | rounded >> 20);
}

/// E8M0: 2^(bits - 127); 255 is NaN. 2^-127 is an fp32 subnormal.
OCTALANE_INLINE float e8m0_to_f32(uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
}

/// 2^(bits - 128), the scale of E2M1 values kept doubled (ggml's MXFP4): no NaN code, 0 and 1 give subnormals.
OCTALANE_INLINE float e8m0_half_to_f32(uint8_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000u << bits : (uint32_t{bits} - 1u) << 23);
}

}  // namespace octalane
