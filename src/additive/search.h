// Nearest sums of codewords. Private to the additive room.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"

namespace octalane::additive {

inline constexpr int64_t kCodewords = 256;

/// Finds for vectors x the codes whose sum q of codewords has the least |(x - q) R|^2, R the root of a metric.
class CodeSearch {
 public:
  CodeSearch(int books, int vector, int beam);

  /// codewords [books][256][vector]; root [vector][vector], null = identity. On as many threads as given.
  void prepare(const float* codewords, const float* root, int threads);

  /// x[count][vector] -> codes[i * code_stride + book]. Codes already there are replaced only by strictly better ones
  /// when `improve` is set. Of equally good codes the lowest are taken. May run on several threads at once.
  void find(const float* x, int64_t count, uint8_t* codes, int64_t code_stride, bool improve) const;

 private:
  int books_, vector_, beam_;
  bool has_root_ = false;
  float root_[64];
  AlignedBuffer<float> turned_;    // codewords R
  AlignedBuffer<float> table_;     // [vector][books * 256] of -2 codewords R, transposed
  AlignedBuffer<float> norms_;     // [books * 256]
  AlignedBuffer<float> gram_;      // [256][256]: 2 c1 . c2
  AlignedBuffer<float> gram_min_;  // [256]: least of a row of gram_
};

}  // namespace octalane::additive
