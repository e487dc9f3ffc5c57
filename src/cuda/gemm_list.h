// All product kernels: GEMM(name, operand, code, form, words, drain, tokens, warpgroups, stages) and GROUP_GEMM(name,
// code, form, group, tokens, warpgroups, stages) and NESTED_GEMM(name, code, minima, tokens, warpgroups, stages). Rows are
// 64 a warpgroup.
#define OCTALANE_GEMMS(GEMM, GROUP_GEMM, NESTED_GEMM)                            \
  GEMM(s8_row_nibble2_128x256, s8, nibble, staged, 2, row, 256, 2, 4)            \
  GEMM(s8_row_nibble2_64x256, s8, nibble, staged, 2, row, 256, 1, 5)             \
  GEMM(s8_row_nibble2_128x128, s8, nibble, staged, 2, row, 128, 2, 7)            \
  GEMM(s8_row_nibble2_128x64, s8, nibble, staged, 2, row, 64, 2, 8)              \
  GEMM(s8_row_nibble1_128x256, s8, nibble, staged, 1, row, 256, 2, 4)            \
  GEMM(s8_row_table2_128x256, s8, table, staged, 2, row, 256, 2, 4)              \
  GEMM(s8_row_byte2_128x256, s8, byte, staged, 2, row, 256, 2, 4)                \
  GEMM(s8_xblock_nibble2_128x192, s8, nibble, staged, 2, xblock, 192, 2, 5)      \
  GEMM(s8_xblock_nibble1_128x192, s8, nibble, staged, 1, xblock, 192, 2, 5)      \
  GEMM(s8_block_nibble2_128x192, s8, nibble, staged, 2, block, 192, 2, 5)        \
  GEMM(s8_block_nibble1_128x192, s8, nibble, staged, 1, block, 192, 2, 5)        \
  GEMM(bf16_nibble2_single_128x256, bf16, nibble, single, 2, none, 256, 2, 4)    \
  GEMM(bf16_nibble2_nested_128x256, bf16, nibble, nested, 2, none, 256, 2, 4)    \
  GEMM(bf16_nibble1_pair_128x256, bf16, nibble, pair, 1, none, 256, 2, 4)        \
  GEMM(bf16_byte4_nested_128x256, bf16, byte, nested, 4, none, 256, 2, 4)        \
  GEMM(f8_row_table2_128x256, e4m3, table, exponent, 2, row, 256, 2, 4)          \
  GEMM(f8_row_table2_128x192, e4m3, table, exponent, 2, promote, 192, 2, 5)      \
  GEMM(f8_row_table2_shift_128x192, e4m3, table, shift, 2, promote, 192, 2, 5)   \
  GROUP_GEMM(s8_group32_nibble_single_128x128, nibble, single, 32, 128, 2, 5)    \
  GROUP_GEMM(s8_group32_nibble_nested_128x128, nibble, nested, 32, 128, 2, 5)    \
  GROUP_GEMM(s8_group32_nibble_single_one_128x128, nibble, single, 32, 128, 2, 5, 1)    \
  GROUP_GEMM(s8_group32_nibble_nested_one_128x128, nibble, nested, 32, 128, 2, 5, 1)    \
  GROUP_GEMM(s8_group64_nibble_pair_128x128, nibble, pair, 64, 128, 2, 5)        \
  GROUP_GEMM(s8_group128_nibble_pair_128x128, nibble, pair, 128, 128, 2, 5)    \
  NESTED_GEMM(s8_nested_nibble_128x128, nibble, true, 128, 2, 6)
