// Kernels for codebooks beside the library's, of the same source: the baseline, whose tiles have 16 tokens and which so
// decodes the weights again for every 16, and other ways to widen codewords. See cuda/additive_list.h.
#define OCTALANE_FROZEN(ADDITIVE)                      \
  ADDITIVE(frozen_m2v8_128x16, 2, 8, 16, 2, 12, 2)     \
  ADDITIVE(frozen_m2v8_128x16_alu, 2, 8, 16, 2, 12, 0) \
  ADDITIVE(frozen_m2v8_64x16, 2, 8, 16, 1, 12, 2)      \
  ADDITIVE(frozen_m2v4_128x16, 2, 4, 16, 2, 10, 2)     \
  ADDITIVE(frozen_m1v8_128x16, 1, 8, 16, 2, 12, 0)     \
  ADDITIVE(frozen_m1v4_128x16, 1, 4, 16, 2, 12, 0)
#define OCTALANE_VARIANTS(ADDITIVE)                      \
  ADDITIVE(variant_m2v8_128x32_alu, 2, 8, 32, 2, 12, 0)  \
  ADDITIVE(variant_m2v8_128x64_one, 2, 8, 64, 2, 10, 1)  \
  ADDITIVE(variant_m2v8_128x64_alu, 2, 8, 64, 2, 10, 0)  \
  ADDITIVE(variant_m2v8_128x128_two, 2, 8, 128, 2, 7, 2) \
  ADDITIVE(variant_m2v8_128x128_one, 2, 8, 128, 2, 7, 1) \
  ADDITIVE(variant_m2v8_64x128_two, 2, 8, 128, 1, 7, 2)  \
  ADDITIVE(variant_m2v8_128x256_one, 2, 8, 256, 2, 4, 1)
