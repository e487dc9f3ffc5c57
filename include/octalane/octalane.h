/* octalane C API: bind a weight matrix once, multiply activations by it often.
 *
 * Every function that can fail returns a status; octalane_last_error() then holds one line that says what, where,
 * wanted and got. No exception crosses this interface. Objects are freed by their own _free function (NULL is fine). An
 * object must not be used by two threads at once; different contexts may be. */
#ifndef OCTALANE_OCTALANE_H
#define OCTALANE_OCTALANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octalane_status { OCTALANE_OK = 0, OCTALANE_ERROR = 1 } octalane_status;

/* The machine as one caller uses it: instruction sets, threads, scratch memory. */
typedef struct octalane_context octalane_context;
/* An open model, memory-mapped: a GGUF file, a .safetensors file or a model folder. */
typedef struct octalane_file octalane_file;
/* A weight matrix W[rows, cols], packed for a context's machine. */
typedef struct octalane_weights octalane_weights;

typedef struct octalane_options {
  int threads;      /* 0: every core that this process may use */
  const char* isa;  /* NULL: every instruction set of this machine; else one by name ("scalar", "avx2") */
  const char* lane; /* NULL or "auto": the stock lane; else a staged type by name ("bf16", "s8.group") */
  /* What kernels are chosen by. NULL: the nominal rates of the kernel table; the library measures nothing by itself.
   * Else the path of a file that `octalane probe -o` wrote. */
  const char* rates;
  /* Lanes by tensor name. NULL: none; else the path of a plan file (docs/cli.md), over `lane` for the tensors that it
   * names unless that is "bf16". Patterns that match no tensor go unnoticed here. */
  const char* lanes;
} octalane_options;

/* "major.minor.patch" */
const char* octalane_version(void);

/* The error of the calling thread's last failed call; "" before the first. Valid until that thread's next failure. */
const char* octalane_last_error(void);

/* options may be NULL for the defaults. */
octalane_status octalane_context_create(const octalane_options* options, octalane_context** out);
void octalane_context_free(octalane_context* context);

octalane_status octalane_file_open(const char* path, octalane_file** out);
void octalane_file_free(octalane_file* file);

/* Packs a tensor of a file: its first dimension is cols, the others together are rows. The file may be freed after. */
octalane_status octalane_weights_bind_tensor(octalane_context* context, const octalane_file* file, const char* tensor,
                                             octalane_weights** out);
/* Packs rows x cols weights lying in `bytes` bytes at `data` in the blocks of a format ("q4_k", "q8_0", "bf16", ...).
 * The data may be freed after. */
octalane_status octalane_weights_bind(octalane_context* context, const char* format, const void* data, size_t bytes,
                                      int64_t rows, int64_t cols, octalane_weights** out);
/* The same for a format whose weights lie in several arrays, as MLX has them in memory: its codes, scales and, where it
 * has them, biases, each row-major, `bytes[i]` bytes at `parts[i]`. "mlx-affine-4-g64" takes bfloat16 scales and
 * biases, "mlx-affine-4-g64-f16" and "-f32" the other types.
 * Additive codebooks have codes, codebooks and scales, as their files have them (docs/formats.md): "additive-m2v8-g128"
 * takes int32 [2][cols / 32][rows], fp16 [2][256][8], fp16 [(cols + 127) / 128][rows]. */
octalane_status octalane_weights_bind_parts(octalane_context* context, const char* format, const void* const* parts,
                                            const size_t* bytes, size_t count, int64_t rows, int64_t cols,
                                            octalane_weights** out);
void octalane_weights_free(octalane_weights* weights);

int64_t octalane_weights_rows(const octalane_weights* weights);
int64_t octalane_weights_cols(const octalane_weights* weights);

/* The kernel that multiplies this many tokens, by name; valid until the calling thread's next call of this function. */
octalane_status octalane_weights_kernel(const octalane_context* context, const octalane_weights* weights,
                                        int64_t tokens, const char** kernel);

/* y[tokens, rows] = x[tokens, cols] W^T, all fp32; row strides in elements, a stride of 0 for x repeats one row.
 * The context must be one with the lane and instruction set that the weights were bound with. */
octalane_status octalane_multiply(octalane_context* context, const octalane_weights* weights, const float* x,
                                  int64_t tokens, int64_t x_stride, float* y, int64_t y_stride);

#ifdef __cplusplus
}
#endif

#endif
