/* A small product whose every value is exact: codes up to 7 bits, power-of-two scales and activations of 4 bits leave
 * nothing to round, so the library must agree with the plain loop to the bit. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <stdint.h>
#include <string.h>

enum { TOKENS = 3, ROWS = 37, COLS = 96, BLOCK = 32, BLOCK_BYTES = 2 + BLOCK, BLOCKS = COLS / BLOCK };

typedef struct Problem {
  unsigned char q8_0[ROWS * BLOCKS * BLOCK_BYTES]; /* per block: an IEEE half, then 32 int8 codes */
  float x[TOKENS * COLS];
  float wanted[TOKENS * ROWS];
} Problem;

static inline void make_problem(Problem* p) {
  static const uint16_t halves[BLOCKS] = {0x2C00, 0xA800, 0x2400}; /* 2^-4, -2^-5, 2^-6 */
  static const float scales[BLOCKS] = {1.0f / 16, -1.0f / 32, 1.0f / 64};
  uint32_t seed = 1;
  for (int i = 0; i < TOKENS * COLS; ++i) {
    seed = seed * 1664525u + 1013904223u;
    p->x[i] = (float)((int)(seed >> 28) - 8) / 8.0f;
  }
  memset(p->wanted, 0, sizeof p->wanted);
  for (int n = 0; n < ROWS; ++n) {
    for (int b = 0; b < BLOCKS; ++b) {
      unsigned char* block = p->q8_0 + (n * BLOCKS + b) * BLOCK_BYTES;
      memcpy(block, &halves[b], sizeof halves[b]);
      for (int i = 0; i < BLOCK; ++i) {
        seed = seed * 1664525u + 1013904223u;
        const int8_t code = (int8_t)((int)(seed >> 24) - 128);
        memcpy(block + 2 + i, &code, 1);
        for (int m = 0; m < TOKENS; ++m) {
          p->wanted[m * ROWS + n] += p->x[m * COLS + b * BLOCK + i] * scales[b] * (float)code;
        }
      }
    }
  }
}

/* The index of the first value that differs, or -1. */
static inline int first_difference(const Problem* p, const float* y) {
  for (int i = 0; i < TOKENS * ROWS; ++i) {
    if (y[i] != p->wanted[i]) return i;
  }
  return -1;
}

#endif
