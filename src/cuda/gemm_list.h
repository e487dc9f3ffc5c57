// All product kernels: GEMM(name, operand, code, form, words, drain, tokens, warpgroups, stages), GROUP_GEMM(name,
// operand, code, form, group, tokens, warpgroups, stages) and NESTED_GEMM(name, code, minima, tokens, warpgroups,
// stages). Rows are 64 a warpgroup.
#define OCTALANE_GEMMS(GEMM, GROUP_GEMM, NESTED_GEMM)                             \
  OCTALANE_ROW_GEMMS(GEMM, nibble, 2)                                             \
  OCTALANE_ROW_GEMMS(GEMM, nibble, 1)                                             \
  OCTALANE_ROW_GEMMS(GEMM, table, 2)                                              \
  OCTALANE_ROW_GEMMS(GEMM, byte, 2)                                               \
  OCTALANE_ROW_GEMMS(GEMM, byte, 1)                                               \
  OCTALANE_BF16_GEMMS(GEMM, nibble, single, 2)                                    \
  OCTALANE_BF16_GEMMS(GEMM, nibble, pair, 2)                                      \
  OCTALANE_BF16_GEMMS(GEMM, nibble, pair, 1)                                      \
  OCTALANE_BF16_GEMMS(GEMM, nibble, nested, 2)                                    \
  OCTALANE_BF16_GEMMS(GEMM, nibble, nested, 4)                                    \
  OCTALANE_BF16_GEMMS(GEMM, table, single, 2)                                     \
  OCTALANE_BF16_GEMMS(GEMM, table, nested, 2)                                     \
  OCTALANE_BF16_GEMMS(GEMM, byte, single, 2)                                      \
  OCTALANE_BF16_GEMMS(GEMM, byte, pair, 2)                                        \
  OCTALANE_BF16_GEMMS(GEMM, byte, pair, 1)                                        \
  OCTALANE_BF16_GEMMS(GEMM, byte, nested, 2)                                      \
  OCTALANE_BF16_GEMMS(GEMM, byte, nested, 4)                                      \
  OCTALANE_BF16_GEMMS(GEMM, e4m3, single, 2)                                      \
  GEMM(f8_row_exponent_128x192, e4m3, table, exponent, 2, promote, 192, 2, 5)     \
  GEMM(f8_row_exponent_128x64, e4m3, table, exponent, 2, promote, 64, 2, 8)       \
  GEMM(f8_row_shift_128x192, e4m3, table, shift, 2, promote, 192, 2, 5)           \
  GROUP_GEMM(s8_group32_nibble_single_128x128, s8, nibble, single, 32, 128, 2, 5) \
  GROUP_GEMM(s8_group32_nibble_pair_128x128, s8, nibble, pair, 32, 128, 2, 5)     \
  GROUP_GEMM(s8_group32_nibble_nested_128x128, s8, nibble, nested, 32, 128, 2, 5) \
  GROUP_GEMM(s8_group32_table_single_128x128, s8, table, single, 32, 128, 2, 5)   \
  GROUP_GEMM(s8_group32_byte_single_128x128, s8, byte, single, 32, 128, 2, 5)     \
  GROUP_GEMM(s8_group32_byte_nested_128x128, s8, byte, nested, 32, 128, 2, 4)     \
  GROUP_GEMM(s8_group64_nibble_pair_128x128, s8, nibble, pair, 64, 128, 2, 5)     \
  GROUP_GEMM(s8_group64_byte_pair_128x128, s8, byte, pair, 64, 128, 2, 5)         \
  GROUP_GEMM(s8_group128_nibble_pair_128x128, s8, nibble, pair, 128, 128, 2, 5)   \
  GROUP_GEMM(f8_group32_table_single_128x128, e4m3, table, single, 32, 128, 2, 6) \
  GROUP_GEMM(f8_group32_e4m3_single_128x128, e4m3, e4m3, single, 32, 128, 2, 6)   \
  NESTED_GEMM(s8_nested_nibble_128x128, nibble, true, 128, 2, 6)                  \
  NESTED_GEMM(s8_nested_byte_128x128, byte, true, 128, 2, 5)

/// Re-encoded int8.
#define OCTALANE_ROW_GEMMS(GEMM, code, words)                                         \
  GEMM(s8_row_##code##words##_128x256, s8, code, staged, words, row, 256, 2, 4)       \
  GEMM(s8_row_##code##words##_64x256, s8, code, staged, words, row, 256, 1, 4)        \
  GEMM(s8_row_##code##words##_128x128, s8, code, staged, words, row, 128, 2, 6)       \
  GEMM(s8_row_##code##words##_128x64, s8, code, staged, words, row, 64, 2, 7)         \
  GEMM(s8_xblock_##code##words##_128x192, s8, code, staged, words, xblock, 192, 2, 4) \
  GEMM(s8_xblock_##code##words##_128x64, s8, code, staged, words, xblock, 64, 2, 7)   \
  GEMM(s8_block_##code##words##_128x192, s8, code, staged, words, block, 192, 2, 4)   \
  GEMM(s8_block_##code##words##_128x64, s8, code, staged, words, block, 64, 2, 7)

/// The stock lane.
#define OCTALANE_BF16_GEMMS(GEMM, code, form, words)                                    \
  GEMM(bf16_##code##_##form##words##_128x256, bf16, code, form, words, none, 256, 2, 4) \
  GEMM(bf16_##code##_##form##words##_128x128, bf16, code, form, words, none, 128, 2, 7) \
  GEMM(bf16_##code##_##form##words##_128x64, bf16, code, form, words, none, 64, 2, 8)
