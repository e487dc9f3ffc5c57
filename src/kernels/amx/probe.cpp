#include <immintrin.h>

#include "kernels/amx/kernels.h"
#include "kernels/amx/tiles.h"
#include "kernels/probe_loops.h"

namespace octalane::amx {
namespace {

constexpr int kTileBytes = 1024;
constexpr int kGrid = 2;  ///< 2 x 2 accumulators, tiles 0 to 3; activations are tiles 4 and 5, weights 6 and 7
constexpr int kStepTileBytes = 2 * kGrid * kTileBytes;
constexpr int kSteps = kProbeOperandBytes / kStepTileBytes;

/// One matrix product, and the operations of one on whole tiles.
struct SignedBytes {
  static constexpr double kOps = 2 * 16 * 16 * 64;
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    product_s8<C, A, B>();
  }
};
struct UnsignedBytes {
  static constexpr double kOps = SignedBytes::kOps;
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
struct Bfloat16 {
  static constexpr double kOps = 2 * 16 * 16 * 32;
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    product_bf16<C, A, B>();
  }
};

struct Half {
  static constexpr double kOps = Bfloat16::kOps;
  /// tdpfp16ps: VEX.128.F2.0F38.W0 5C /r. Clang 14 does not know it.
  template <int C, int A, int B>
  OCTALANE_INLINE static void product() {
    asm volatile(".byte 0xC4, 0xE2, %c0, 0x5C, %c1" : : "i"((~B & 15) << 3 | 3), "i"(0xC0 | C << 3 | A));
  }
};

OCTALANE_INLINE void zero_accumulators() {
  zero<0>();
  zero<1>();
  zero<2>();
  zero<3>();
}

OCTALANE_INLINE void store_accumulators(std::byte* to) {
  store<0>(to);
  store<1>(to + kTileBytes);
  store<2>(to + 2 * kTileBytes);
  store<3>(to + 3 * kTileBytes);
}

template <class Op>
OCTALANE_INLINE void products() {
  Op::template product<0, 4, 6>();
  Op::template product<1, 4, 7>();
  Op::template product<2, 5, 6>();
  Op::template product<3, 5, 7>();
}

/// The inner step of a gemm: its four operands from L1.
template <class Op>
OCTALANE_INLINE void loaded_products(const std::byte* operands) {
  load<4>(operands);
  load<6>(operands + 2 * kTileBytes);
  Op::template product<0, 4, 6>();
  load<7>(operands + 3 * kTileBytes);
  Op::template product<1, 4, 7>();
  load<5>(operands + kTileBytes);
  Op::template product<2, 5, 6>();
  Op::template product<3, 5, 7>();
}

template <class Op>
struct TileRegisters {
  static constexpr int kRounds = 4;
  static constexpr double kOps = kRounds * kGrid * kGrid * Op::kOps;

  static void run(const ProbeArgs& args) {
    const Tiles tiles;
    load<4>(args.operands);
    load<5>(args.operands + kTileBytes);
    load<6>(args.operands + 2 * kTileBytes);
    load<7>(args.operands + 3 * kTileBytes);
    zero_accumulators();
    for (int64_t n = 0; n < args.iterations; ++n) {
      probe_unroll<kRounds>([](auto) OCTALANE_PROBE_LAMBDA { products<Op>(); });
    }
    store_accumulators(args.out);
  }
};

template <class Op>
struct TileLoaded {
  static constexpr double kOps = kSteps * kGrid * kGrid * Op::kOps;

  static void run(const ProbeArgs& args) {
    const Tiles tiles;
    zero_accumulators();
    for (int64_t n = 0; n < args.iterations; ++n) {
      for (int step = 0; step < kSteps; ++step) loaded_products<Op>(args.operands + step * kStepTileBytes);
    }
    store_accumulators(args.out);
  }
};

/// Four tiles of int32 sums, [token][weight row], into fp32 sums of the same shape. Biases belong to weights kept as
/// they are, whose groups are drained one by one.
template <bool HasBias>
OCTALANE_INLINE void drain(const std::byte* dots, const ProbeArgs& args) {
  for (int tile = 0; tile < kGrid * kGrid; ++tile) {
    const __m512 scale = _mm512_load_ps(args.scales + 16 * (tile % kGrid));
    const __m512 bias = _mm512_load_ps(args.biases + 16 * (tile % kGrid));
    const float* const tokens = args.scales + 32 + 16 * (tile / kGrid);
    for (int token = 0; token < 16; ++token) {
      const int at = tile * kTileBytes + token * 64;
      __m512 term = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_load_si512(dots + at)));
      if constexpr (HasBias) term = _mm512_fmadd_ps(bias, _mm512_set1_ps(tokens[token]), term);
      const __m512 sum = _mm512_load_ps(args.out + at);
      _mm512_store_ps(args.out + at, _mm512_fmadd_ps(_mm512_set1_ps(tokens[token]), term, sum));
    }
  }
}

/// Drains every Steps steps. Tiles wait in one of two buffers, so that the next products need not wait for the drain.
/// An iteration is one drain. Columns: of a step; 32 leave half of each tile unused, as a group of 32 codes does.
template <class Op, int Columns, int Steps>
struct TileDrain {
  static constexpr double kOps = Steps * kGrid * kGrid * Op::kOps * Columns / 64;

  static void run(const ProbeArgs& args) {
    const Tiles tiles(Columns);
    alignas(64) std::byte dots[2][kGrid * kGrid * kTileBytes];
    for (int at = 0; at < kGrid * kGrid * kTileBytes; at += 64) _mm512_store_ps(args.out + at, _mm512_setzero_ps());
    for (int64_t n = 0; n < args.iterations; ++n) {
      zero_accumulators();
      for (int step = 0; step < Steps; ++step) loaded_products<Op>(args.operands + step % kSteps * kStepTileBytes);
      store_accumulators(dots[n % 2]);
      drain<Columns == 32>(dots[n % 2], args);
    }
  }
};

template <template <class> class Loop, class Op>
constexpr ProbeLoop plain_row(const char* instruction, ProbeElement element, ProbeKind kind) {
  constexpr Lane kLanes[] = {Lane::s8, Lane::bf16, Lane::f16};
  return probe_row<Loop<Op>>(instruction, kLanes[static_cast<int>(element)], element, kind);
}

template <template <class> class Loop>
constexpr ProbeLoop half_row(ProbeKind kind) {
  ProbeLoop row = plain_row<Loop, Half>("tdpfp16ps", ProbeElement::f16, kind);
  row.available = has_fp16;
  return row;
}

template <class Op, int Columns, int Steps>
constexpr ProbeLoop drain_row(const char* instruction, ProbeKind kind) {
  return probe_row<TileDrain<Op, Columns, Steps>>(instruction, Lane::s8, ProbeElement::s8, kind);
}

}  // namespace

constinit const ProbeLoop probes[kProbes] = {
    plain_row<TileRegisters, SignedBytes>("tdpbssd", ProbeElement::s8, ProbeKind::registers),
    plain_row<TileLoaded, SignedBytes>("tdpbssd", ProbeElement::s8, ProbeKind::loaded),
    drain_row<SignedBytes, 32, 1>("tdpbssd", ProbeKind::drain_32),
    drain_row<SignedBytes, 64, 4>("tdpbssd", ProbeKind::drain_256),
    drain_row<SignedBytes, 64, 64>("tdpbssd", ProbeKind::drain_row),
    plain_row<TileRegisters, UnsignedBytes>("tdpbusd", ProbeElement::s8, ProbeKind::registers),
    plain_row<TileLoaded, UnsignedBytes>("tdpbusd", ProbeElement::s8, ProbeKind::loaded),
    drain_row<UnsignedBytes, 32, 1>("tdpbusd", ProbeKind::drain_32),
    drain_row<UnsignedBytes, 64, 4>("tdpbusd", ProbeKind::drain_256),
    drain_row<UnsignedBytes, 64, 64>("tdpbusd", ProbeKind::drain_row),
    plain_row<TileRegisters, Bfloat16>("tdpbf16ps", ProbeElement::bf16, ProbeKind::registers),
    plain_row<TileLoaded, Bfloat16>("tdpbf16ps", ProbeElement::bf16, ProbeKind::loaded),
    half_row<TileRegisters>(ProbeKind::registers),
    half_row<TileLoaded>(ProbeKind::loaded),
};

}  // namespace octalane::amx
