// All product kernels: GEMM(name, operand, code, drain, tokens, warpgroups, stages, fine) and GROUP_GEMM(name, code,
// group, bias, tokens, warpgroups, stages). Rows are 64 a warpgroup.
#define OCTALANE_GEMMS(GEMM, GROUP_GEMM)                                          \
  GEMM(s8_row_nibble_128x256, s8, nibble, row, 256, 2, 4, false)                  \
  GEMM(s8_row_nibble_64x256, s8, nibble, row, 256, 1, 5, false)                   \
  GEMM(s8_row_nibble_128x128, s8, nibble, row, 128, 2, 6, false)                  \
  GEMM(s8_row_nibble_128x64, s8, nibble, row, 64, 2, 8, false)                    \
  GEMM(s8_row_table_128x256, s8, table, row, 256, 2, 4, false)                    \
  GEMM(s8_row_byte_128x256, s8, byte, row, 256, 2, 4, false)                      \
  GEMM(s8_xblock_nibble_128x192, s8, nibble, xblock, 192, 2, 5, false)            \
  GEMM(s8_block_nibble_128x192, s8, nibble, block, 192, 2, 5, false)              \
  GEMM(bf16_nibble_128x256, bf16, nibble, none, 256, 2, 4, false)                 \
  GEMM(bf16_nibble_128x128, bf16, nibble, none, 128, 2, 6, false)                 \
  GEMM(bf16_nibble_128x64, bf16, nibble, none, 64, 2, 8, false)                   \
  GEMM(bf16_byte_fine_128x256, bf16, byte, none, 256, 2, 4, true)                 \
  GEMM(f8_row_table_128x192, e4m3, table, promote, 192, 2, 5, false)              \
  GROUP_GEMM(s8_group32_nibble_128x128, nibble, 32, true, 128, 2, 5)              \
  GROUP_GEMM(s8_group32_nibble_plain_128x128, nibble, 32, false, 128, 2, 5)       \
  GROUP_GEMM(s8_group64_nibble_128x128, nibble, 64, true, 128, 2, 5)              \
  GROUP_GEMM(s8_group128_nibble_128x128, nibble, 128, true, 128, 2, 5)
