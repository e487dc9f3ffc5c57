// All product kernels of mma.sync: GEMM(function, drain, code, form, least, words, group, tokens), see GemmMmaShape;
// weights may have from `least` to `words` scale words a row and record.
#define OCTALANE_MMA_GEMMS(GEMM)                                           \
  OCTALANE_MMA_GEMM(GEMM, s8_row_nibble, row, nibble, staged, 1, 2)        \
  OCTALANE_MMA_GEMM(GEMM, s8_row_table, row, table, staged, 2, 2)          \
  OCTALANE_MMA_GEMM(GEMM, s8_row_byte, row, byte, staged, 1, 2)            \
  OCTALANE_MMA_GEMM(GEMM, s8_xblock_nibble, xblock, nibble, staged, 1, 2)  \
  OCTALANE_MMA_GEMM(GEMM, s8_block_nibble, block, nibble, staged, 1, 2)    \
  OCTALANE_MMA_GEMM(GEMM, s8_xblock_table, xblock, table, staged, 2, 2)    \
  OCTALANE_MMA_GEMM(GEMM, s8_block_table, block, table, staged, 2, 2)      \
  OCTALANE_MMA_GEMM(GEMM, s8_xblock_byte, xblock, byte, staged, 1, 2)      \
  OCTALANE_MMA_GEMM(GEMM, s8_block_byte, block, byte, staged, 1, 2)        \
  OCTALANE_MMA_GEMM(GEMM, s8_nested_nibble, nested, nibble, nested, 2, 2)  \
  OCTALANE_MMA_GEMM(GEMM, s8_nested_byte, nested, byte, nested, 2, 2)      \
  OCTALANE_MMA_GEMM(GEMM, bf16_nibble_single, none, nibble, single, 2, 2)  \
  OCTALANE_MMA_GEMM(GEMM, bf16_nibble_pair, none, nibble, pair, 1, 2)      \
  OCTALANE_MMA_GEMM(GEMM, bf16_nibble_nested2, none, nibble, nested, 2, 2) \
  OCTALANE_MMA_GEMM(GEMM, bf16_nibble_nested4, none, nibble, nested, 4, 4) \
  OCTALANE_MMA_GEMM(GEMM, bf16_table_single, none, table, single, 2, 2)    \
  OCTALANE_MMA_GEMM(GEMM, bf16_table_nested2, none, table, nested, 2, 2)   \
  OCTALANE_MMA_GEMM(GEMM, bf16_byte_single, none, byte, single, 2, 2)      \
  OCTALANE_MMA_GEMM(GEMM, bf16_byte_pair, none, byte, pair, 1, 2)          \
  OCTALANE_MMA_GEMM(GEMM, bf16_byte_nested2, none, byte, nested, 2, 2)     \
  OCTALANE_MMA_GEMM(GEMM, bf16_byte_nested4, none, byte, nested, 4, 4)     \
  GEMM(mma_s8_group32_nibble_single, group, nibble, single, 2, 2, 32, 64)  \
  GEMM(mma_s8_group32_nibble_pair, group, nibble, pair, 2, 2, 32, 64)      \
  GEMM(mma_s8_group32_nibble_nested, group, nibble, nested, 2, 2, 32, 64)  \
  GEMM(mma_s8_group32_table_single, group, table, single, 2, 2, 32, 64)    \
  GEMM(mma_s8_group32_byte_single, group, byte, single, 2, 2, 32, 64)      \
  GEMM(mma_s8_group32_byte_nested, group, byte, nested, 2, 2, 32, 64)      \
  GEMM(mma_s8_group64_nibble_pair, group, nibble, pair, 1, 1, 64, 64)      \
  GEMM(mma_s8_group64_byte_pair, group, byte, pair, 1, 1, 64, 64)          \
  GEMM(mma_s8_group128_nibble_pair, group, nibble, pair, 1, 1, 128, 64)

#define OCTALANE_MMA_GEMM(GEMM, name, drain, code, form, least, words) \
  GEMM(mma_##name##_128x128, drain, code, form, least, words, 0, 128)  \
  GEMM(mma_##name##_128x64, drain, code, form, least, words, 0, 64)
