// Products with weights of codebooks on a device: weights that stay in its memory, the kernels, and their launches.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cuda/additive_pack.h"
#include "cuda/additive_shapes.h"
#include "cuda/product.h"

namespace octalane::cuda {

struct AdditiveKernel {
  const char* function;  ///< of device code
  int books, vector;
  int tensor_books;  ///< of the books, how many the tensor cores widen
  int rows, tokens;  ///< of a tile
  int threads, shared_bytes;
};

template <class S>
constexpr AdditiveKernel additive_kernel(const char* function) {
  return {function, S::kBooks, S::kVector, S::kTensorBooks, S::kRows, S::kTokens, S::kThreads, S::kSharedBytes};
}

/// Those of additive_code().
std::span<const AdditiveKernel> additive_kernels();

/// "bf16_gemm_128x64x64_cuda-codebook-m2v8": lane, tile of rows, tokens and columns, books, values of a codeword.
std::string name(const AdditiveKernel& kernel);

/// Why the kernel cannot multiply these weights; empty = it can.
std::string why_not(const AdditiveKernel& kernel, const CodebookRecords& weights);

/// The kernel of additive_kernels() for so many tokens: the smallest tile that holds them, else the largest; of those
/// for as many tokens, lower tiles for matrices of few rows. Null when none takes the weights.
const AdditiveKernel* choose_additive_kernel(const CodebookRecords& weights, int64_t tokens);

/// Codebook weights in a device's memory. `about` keeps everything but the arrays.
class CodebookWeights {
 public:
  /// Uploads, once. Errors: the device's.
  static Expected<CodebookWeights> upload(const Session& session, CodebookRecords records);

  const CodebookRecords& about() const { return about_; }
  int64_t bytes() const { return codes_.bytes() + scales_.bytes() + codebooks_.bytes(); }
  Address codes() const { return codes_.address(); }
  Address scales() const { return scales_.address(); }
  Address codebooks() const { return codebooks_.address(); }

 private:
  CodebookWeights(CodebookRecords about, Buffer codes, Buffer scales, Buffer codebooks)
      : about_(std::move(about)),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        codebooks_(std::move(codebooks)) {}
  CodebookRecords about_;
  Buffer codes_, scales_, codebooks_;
};

/// Activations as they come: rows of `cols` elements, `stride` from one to the next.
struct RawTokens {
  Address x = 0;
  bool f32 = false;  ///< else bfloat16
  int64_t tokens = 0, cols = 0, stride = 0;
};

/// The kernels of a device.
class AdditiveProducts {
 public:
  static Expected<AdditiveProducts> load(const Session& session);
  /// Of an image that has these kernels, which must outlive the products.
  static Expected<AdditiveProducts> load(const Session& session, std::span<const std::byte> image,
                                         std::span<const AdditiveKernel> kernels);

  /// Enqueues y = x W^T, one of load()'s kernels; may be captured. x.x: [tokens][padded columns] of bfloat16 in the
  /// order of codeword_position. Errors: a kernel that cannot serve the weights, an output it cannot write, the
  /// driver's.
  Status multiply(const AdditiveKernel& kernel, const CodebookWeights& weights, const StagedTokens& x, const Output& y,
                  const Stream& stream) const;

  /// Enqueues the staging of activations for multiply: `staged` has room for [tokens][columns rounded up to
  /// kPanelCols]. Errors: an image without it, the driver's.
  Status stage(const RawTokens& x, Address staged, const Stream& stream) const;

 private:
  AdditiveProducts(const Session& session, Module module, std::span<const AdditiveKernel> kernels)
      : session_(&session), module_(std::move(module)), kernels_(kernels) {}
  const Session* session_;
  Module module_;
  std::span<const AdditiveKernel> kernels_;
  std::vector<FunctionHandle> functions_;  ///< in the order of the kernels
};

}  // namespace octalane::cuda
