// Tile registers by inline assembly: GCC 12's _tile_loadconfig names only 8 bytes of its operand as read, and its loads
// and stores say nothing of memory at all.
#pragma once

#include <immintrin.h>

#include "core/inline.h"
#include "kernels/amx/panels.h"

namespace octalane::amx {
namespace {

/// Eight tiles of 16 rows x 64 bytes, from construction to destruction. Per thread.
/// With fewer bytes of columns: the left operands (4 and 5) have shorter rows, the right ones (6 and 7) fewer.
class Tiles {
 public:
  OCTALANE_INLINE explicit Tiles(int column_bytes = 64) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } configuration;
    for (int tile = 0; tile < 8; ++tile) {
      configuration.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? column_bytes : 64);
      configuration.rows[tile] = static_cast<uint8_t>(tile >= 6 ? column_bytes / 4 : 16);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
  }
  OCTALANE_INLINE ~Tiles() { __asm__ volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int Tile>
OCTALANE_INLINE void zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
/// 1 KiB, rows 64 bytes apart.
template <int Tile>
OCTALANE_INLINE void load(const void* from) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(int64_t{64}), "i"(Tile) : "memory");
}
/// The same for what is read once before it is evicted: it does not push the resident operand out of L1.
template <int Tile>
OCTALANE_INLINE void load_stream(const void* from) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(int64_t{64}), "i"(Tile) : "memory");
}
template <int Tile>
OCTALANE_INLINE void store(void* to) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(int64_t{64}), "i"(Tile) : "memory");
}
/// C[token][row] += A[token][32 columns] B[16 column pairs][row][2], bfloat16 to fp32.
template <int C, int A, int B>
OCTALANE_INLINE void product_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
/// C[token][row] += A[token][64 columns] B[16 column quads][row][4], signed bytes to int32.
template <int C, int A, int B>
OCTALANE_INLINE void product_s8() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

/// Tiles 0 to 3, of the first 16 tokens alone or of 32.
template <int Halves>
OCTALANE_INLINE void save_accumulators(std::byte* to) {
  store<0>(to);
  store<1>(to + kStepTile);
  if constexpr (Halves == 2) store<2>(to + 2 * kStepTile), store<3>(to + 3 * kStepTile);
}

}  // namespace
}  // namespace octalane::amx
