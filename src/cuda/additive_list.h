// The product kernels for codebooks: ADDITIVE(name, books, vector, tokens, warpgroups, stages, tensor books).
#define OCTALANE_ADDITIVES(ADDITIVE)                  \
  ADDITIVE(codebook_m2v8_128x32, 2, 8, 32, 2, 12, 2)  \
  ADDITIVE(codebook_m2v8_64x32, 2, 8, 32, 1, 12, 2)   \
  ADDITIVE(codebook_m2v8_128x64, 2, 8, 64, 2, 10, 2)  \
  ADDITIVE(codebook_m2v8_64x64, 2, 8, 64, 1, 10, 2)   \
  ADDITIVE(codebook_m2v8_128x128, 2, 8, 128, 2, 7, 0) \
  ADDITIVE(codebook_m2v8_64x128, 2, 8, 128, 1, 7, 0)  \
  ADDITIVE(codebook_m2v8_128x256, 2, 8, 256, 2, 4, 0) \
  ADDITIVE(codebook_m1v8_128x64, 1, 8, 64, 2, 10, 0)  \
  ADDITIVE(codebook_m1v8_128x256, 1, 8, 256, 2, 4, 0) \
  ADDITIVE(codebook_m2v4_128x64, 2, 4, 64, 2, 10, 2)  \
  ADDITIVE(codebook_m2v4_128x256, 2, 4, 256, 2, 3, 0) \
  ADDITIVE(codebook_m1v4_128x64, 1, 4, 64, 2, 10, 0)  \
  ADDITIVE(codebook_m1v4_128x256, 1, 4, 256, 2, 4, 0)
