// From codes of codebooks to the left operands of wgmma: 32 columns of a record for a thread.
#pragma once

#include "cuda/additive_shapes.h"
#include "cuda/device/async.cuh"
#include "cuda/device/decode.cuh"
#include "cuda/device/instructions.cuh"

namespace octalane::cuda {

/// Arrives at the barrier that lies at `barrier` in the other block of the cluster; what this thread stored before is
/// visible behind it.
__device__ __forceinline__ void cluster_arrive(uint32_t barrier, int rank) {
  asm volatile(
      "{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; "
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void cluster_barrier_wait(uint32_t barrier, int parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
/// To where `at` lies in block `rank` of the cluster.
__device__ __forceinline__ void cluster_store(uint32_t at, int rank, const float (&v)[4]) {
  asm volatile(
      "{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.v4.f32 [a], {%2, %3, %4, %5}; }" ::"r"(at),
      "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
}

template <int Words>
__device__ __forceinline__ void load_words(uint32_t at, uint32_t (&v)[Words]) {
  if constexpr (Words == 1) {
    v[0] = shared_32(at);
  } else if constexpr (Words == 2) {
    const uint2 w = shared_64(at);
    v[0] = w.x, v[1] = w.y;
  } else {
    const uint4 w = shared_128(at);
    v[0] = w.x, v[1] = w.y, v[2] = w.z, v[3] = w.w;
  }
}

/// Copies every codeword into each of its places in the table.
template <class S>
__device__ __forceinline__ void fill_table(const uint8_t* codebooks, uint32_t table, int thread) {
  constexpr int kPieces = kBookCodes * S::kBooks * 8;  // of 16 bytes
#pragma unroll 4
  for (int p = thread; p < kPieces; p += S::kWarpgroups * 128) {
    const int code = p / 8 / S::kBooks, book = p / 8 % S::kBooks;
    const uint8_t* const from = codebooks + (book * kBookCodes + code) * S::kVector * 2;
    uint4 word;
    if constexpr (S::kVector == 8) {
      word = *reinterpret_cast<const uint4*>(from);
    } else {
      const uint2 half = *reinterpret_cast<const uint2*>(from);
      word = {half.x, half.y, half.x, half.y};
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(table + code * 256 + book * 128 + p % 8 * 16),
                 "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
  }
}

/// A lane's part of the 8 by 8 identity as the right operand of widen_by_identity.
__device__ __forceinline__ uint32_t identity_of(int lane) {
  constexpr uint32_t kOne = 0x3C00;  // binary16
  const int row = lane % 4 * 2, column = lane / 4;
  return row == column ? kOne : row + 1 == column ? kOne << 16 : 0;
}

/// The four binary16 of two words, exactly. A lane gets what it gave: one term of each sum is not a product by zero.
__device__ __forceinline__ void widen_by_identity(uint32_t first, uint32_t second, uint32_t identity, float (&v)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
      : "r"(first), "r"(second), "r"(identity), "f"(0.0f));
}

__device__ __forceinline__ void widen_pair(uint32_t word, float& low, float& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(low), "=f"(high)
      : "r"(word));
}

/// A thread's codewords of 32 columns: of rows h = 0, 1 and each book eight values.
template <class S>
struct Codewords {
  uint32_t words[2][S::kBooks][4];

  __device__ __forceinline__ void gather(const uint8_t* table, const uint32_t (&codes)[S::kThreadBytes / 4],
                                         uint32_t lanes, int u) {
    constexpr int kVectors = 8 / S::kVector;
#pragma unroll
    for (int q = 0; q < kVectors; ++q) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int book = 0; book < S::kBooks; ++book) {
          const int at = ((u * kVectors + q) * 2 + h) * S::kBooks + book;
          const uint8_t* const from = table + book * 128 + permute(codes[at / 4], lanes, 0x5504 + at % 4 * 16);
          uint32_t(&to)[4] = words[h][book];
          if constexpr (S::kVector == 8) {
            const uint4 w = *reinterpret_cast<const uint4*>(from);
            to[0] = w.x, to[1] = w.y, to[2] = w.z, to[3] = w.w;
          } else {
            const uint2 w = *reinterpret_cast<const uint2*>(from);
            to[2 * q] = w.x, to[2 * q + 1] = w.y;
          }
        }
      }
    }
  }

  /// Four values of row h of a book: those of instruction i.
  template <int Book>
  __device__ __forceinline__ void widen(int h, int i, uint32_t identity, float (&v)[4]) const {
    const uint32_t first = words[h][Book][2 * i], second = words[h][Book][2 * i + 1];
    if constexpr (Book < S::kTensorBooks) {
      widen_by_identity(first, second, identity, v);
    } else {
      widen_pair(first, v[0], v[1]);
      widen_pair(second, v[2], v[3]);
    }
  }

  /// The operands of two instructions; `scale_pair` has the binary16 of both rows.
  __device__ __forceinline__ void operands(uint32_t scale_pair, uint32_t identity, uint32_t (&a)[2][4]) const {
    float scale[2];
    widen_pair(scale_pair, scale[0], scale[1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float w[4];
        widen<0>(h, i, identity, w);
        if constexpr (S::kBooks == 2) {
          float second[4];
          widen<1>(h, i, identity, second);
#pragma unroll
          for (int e = 0; e < 4; ++e) w[e] = __fadd_rn(w[e], second[e]);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) w[e] = __fmul_rn(scale[h], w[e]);
        a[i][h] = pack_bf16(w[0], w[1]);
        a[i][h + 2] = pack_bf16(w[2], w[3]);
      }
    }
  }
};

}  // namespace octalane::cuda
