// What the probe loops of 256-bit int8 instructions share: operands of four bytes a unit, int32 sums, and their drain.
#pragma once

#include <immintrin.h>

#include "kernels/probe_loops.h"

namespace octalane::avx2 {
namespace {

struct ByteOperands {
  using Vector = __m256i;
  using Accumulator = __m256i;
  static constexpr int kOps = 2 * 32;
  static constexpr int kUnit = 4;
  OCTALANE_INLINE static Accumulator zero() { return _mm256_setzero_si256(); }
  OCTALANE_INLINE static Vector load(const std::byte* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  OCTALANE_INLINE static Vector broadcast(const std::byte* p) {
    int32_t unit;
    __builtin_memcpy(&unit, p, sizeof unit);
    return _mm256_set1_epi32(unit);
  }
  OCTALANE_INLINE static void store(std::byte* p, Accumulator sum) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), sum);
  }
};

struct Drain {
  using Sum = __m256;
  OCTALANE_INLINE static Sum zero_sum() { return _mm256_setzero_ps(); }
  OCTALANE_INLINE static void add(__m256i dots, const ProbeArgs& args, int vector, int token, Sum& sum) {
    const __m256 scale = _mm256_load_ps(args.scales + 8 * vector), bias = _mm256_load_ps(args.biases + 8 * vector);
    const __m256 code_sum = _mm256_broadcast_ss(args.scales + 32 + token);
    const __m256 activation_scale = _mm256_broadcast_ss(args.scales + 48 + token);
    const __m256 term = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), _mm256_mul_ps(bias, code_sum));
    sum = _mm256_fmadd_ps(activation_scale, term, sum);
  }
  OCTALANE_INLINE static void store_sum(std::byte* p, Sum sum) { _mm256_store_ps(reinterpret_cast<float*>(p), sum); }
};

}  // namespace
}  // namespace octalane::avx2
