// wgmma with 64 rows of weights from registers and tokens from shared memory: sums[rows x tokens] += a b over 32 bytes
// of K. With `fresh` the sums start at zero. One overload for each operand type and number of tokens: a thread has
// tokens / 2 sums.
#pragma once

#include "cuda/device/elements.cuh"
#include "cuda/device/wgmma_group.cuh"

namespace octalane::cuda {

// Ten operand names, and eight accumulators.
#define OCTALANE_P(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define OCTALANE_D8(c, i)                                                                                            \
  "+" c(d[i]), "+" c(d[i + 1]), "+" c(d[i + 2]), "+" c(d[i + 3]), "+" c(d[i + 4]), "+" c(d[i + 5]), "+" c(d[i + 6]), \
      "+" c(d[i + 7])
#define OCTALANE_D32(c, i) OCTALANE_D8(c, i), OCTALANE_D8(c, i + 8), OCTALANE_D8(c, i + 16), OCTALANE_D8(c, i + 24)
#define OCTALANE_P30 OCTALANE_P() "," OCTALANE_P(1) "," OCTALANE_P(2)
#define OCTALANE_P90 \
  OCTALANE_P30       \
  "," OCTALANE_P(3) "," OCTALANE_P(4) "," OCTALANE_P(5) "," OCTALANE_P(6) "," OCTALANE_P(7) "," OCTALANE_P(8)
#define OCTALANE_P32 OCTALANE_P30 ",%30,%31"
#define OCTALANE_P64 OCTALANE_P30 "," OCTALANE_P(3) "," OCTALANE_P(4) "," OCTALANE_P(5) ",%60,%61,%62,%63"
#define OCTALANE_P96 OCTALANE_P90 ",%90,%91,%92,%93,%94,%95"
#define OCTALANE_P128 \
  OCTALANE_P90 "," OCTALANE_P(9) "," OCTALANE_P(10) "," OCTALANE_P(11) ",%120,%121,%122," \
               "%123,%124,%125,%126,%127"

#define OCTALANE_WGMMA(Type, instruction, constraint, immediates, tokens, accumulators, list, a, b, p)               \
  __device__ __forceinline__ void wgmma(Type, Type::Sum(&d)[tokens / 2], const uint32_t(&weights)[4], uint64_t tile, \
                                        int fresh) {                                                                 \
    asm volatile("{ .reg .pred p; setp.eq.b32 p, " p ", 0; wgmma.mma_async.sync.aligned.m64n" #tokens instruction    \
                 " {" accumulators "}, {" a "}, " b ", p" immediates "; }"                                           \
                 : list                                                                                              \
                 : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(tile), "r"(fresh));       \
  }
#define OCTALANE_WGMMAS(Type, instruction, c, immediates)                                                          \
  OCTALANE_WGMMA(Type, instruction, c, immediates, 64, OCTALANE_P32, OCTALANE_D32(c, 0), "%32,%33,%34,%35", "%36", \
                 "%37")                                                                                            \
  OCTALANE_WGMMA(Type, instruction, c, immediates, 128, OCTALANE_P64,                                              \
                 OCTALANE_D32(c, 0) OCTALANE_COMMA OCTALANE_D32(c, 32), "%64,%65,%66,%67", "%68", "%69")           \
  OCTALANE_WGMMA(Type, instruction, c, immediates, 192, OCTALANE_P96,                                              \
                 OCTALANE_D32(c, 0) OCTALANE_COMMA OCTALANE_D32(c, 32) OCTALANE_COMMA OCTALANE_D32(c, 64),         \
                 "%96,%97,%98,%99", "%100", "%101")                                                                \
  OCTALANE_WGMMA(Type, instruction, c, immediates, 256, OCTALANE_P128,                                             \
                 OCTALANE_D32(c, 0) OCTALANE_COMMA OCTALANE_D32(c, 32) OCTALANE_COMMA OCTALANE_D32(c, 64)          \
                     OCTALANE_COMMA OCTALANE_D32(c, 96),                                                           \
                 "%128,%129,%130,%131", "%132", "%133")
#define OCTALANE_COMMA ,
OCTALANE_WGMMAS(S8, "k32.s32.s8.s8", "r", "")
OCTALANE_WGMMAS(E4m3, "k32.f32.e4m3.e4m3", "f", ", 1, 1")
OCTALANE_WGMMAS(Bf16, "k16.f32.bf16.bf16", "f", ", 1, 1, 0")
#undef OCTALANE_COMMA
#undef OCTALANE_WGMMAS
#undef OCTALANE_WGMMA
#undef OCTALANE_P128
#undef OCTALANE_P96
#undef OCTALANE_P64
#undef OCTALANE_P32
#undef OCTALANE_P90
#undef OCTALANE_P30
#undef OCTALANE_D32
#undef OCTALANE_D8
#undef OCTALANE_P

}  // namespace octalane::cuda
