// The vendor's product of dense operands, tuned: the fastest of the algorithms that cuBLASLt's heuristics propose.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/cublaslt_api.h"
#include "cuda/session.h"

namespace octalane::cli {

enum class LtKind {
  bf16,  ///< bf16 x bf16, fp32 sums, bf16 out
  s8,    ///< s8 x s8, s32 sums, s32 out: no scale is applied
  f8,    ///< e4m3 x e4m3, fp32 sums, times one scale of 1 per tensor, bf16 out
};

/// y[tokens, rows] = x[tokens, columns] w[rows, columns]^T, all row-major and dense.
struct LtProblem {
  LtKind kind = LtKind::bf16;
  int64_t tokens = 0, rows = 0, columns = 0;
  bool fast_accumulation = true;  ///< f8: sums stay in the tensor core's narrower accumulators

  int64_t x_bytes() const { return tokens * columns * (kind == LtKind::bf16 ? 2 : 1); }
  int64_t w_bytes() const { return rows * columns * (kind == LtKind::bf16 ? 2 : 1); }
  int64_t y_bytes() const { return tokens * rows * (kind == LtKind::s8 ? 4 : 2); }
};

/// Addresses are multiples of 256, which algorithms are chosen for.
struct LtOperands {
  cuda::Address x = 0, w = 0, y = 0;
};

/// One proposed algorithm and how it did.
struct LtCandidate {
  LtAlgo algo;
  size_t workspace_bytes = 0;
  float waves = 0;
  int id = 0, tile = 0, stages = 0, cluster = 0, split_k = 0, swizzle = 0, custom = 0;  ///< numbers of cublasLt.h
  std::vector<double> seconds;  ///< per product, one sample a round
  double median = 0;            ///< of the seconds
  std::string failure;          ///< why it has none; "" when it ran
};

/// "algo 66, tile 128x256 (23), stages 36, cluster 3, split-K 1, swizzle 0, custom 0".
std::string describe(const LtCandidate& candidate);

struct LtTuning {
  int candidates = 16;  ///< asked for; heuristics may know fewer
  int64_t workspace_bytes = int64_t{64} << 20;
  int rounds = 5, launches = 10;  ///< a sample is that many launches, timed by events
};

class LtProduct {
 public:
  /// Times every proposed algorithm, in alternation, on operands in rotation; writes their y. The session, the stream's
  /// driver table and `api` must outlive the product.
  static Expected<LtProduct> tune(const LtApi& api, const cuda::Session& session, const cuda::Stream& stream,
                                  const LtProblem& problem, std::span<const LtOperands> copies,
                                  const LtTuning& tuning = {});

  /// Enqueues one product by the fastest algorithm; may be captured. Products share a workspace: one stream at a time.
  Status run(const LtOperands& operands, const cuda::Stream& stream) const { return run(best(), operands, stream); }

  const LtCandidate& best() const { return candidates_[best_]; }
  const std::vector<LtCandidate>& candidates() const { return candidates_; }  ///< in the order of the heuristics
  const LtProblem& problem() const { return problem_; }

 private:
  template <class State>
  using Owned = std::unique_ptr<State, int (*)(State*)>;

  LtProduct(const LtApi& api, const LtProblem& problem, cuda::Buffer workspace, cuda::Buffer scale);
  Status describe_problem();
  Status propose(int wanted);
  Status run(const LtCandidate& candidate, const LtOperands& operands, const cuda::Stream& stream) const;
  Expected<cuda::Graph> capture(const LtCandidate& candidate, std::span<const LtOperands> copies, int launches,
                                const cuda::Stream& stream) const;
  Status time_all(std::span<const LtOperands> copies, const LtTuning& tuning, const cuda::Stream& stream,
                  const cuda::Event& begin, const cuda::Event& end);

  const LtApi* api_;
  LtProblem problem_;
  cuda::Buffer workspace_, scale_;
  Owned<LtState> handle_;
  Owned<LtMatmulDescState> desc_;
  Owned<LtLayoutState> w_, x_, y_;
  std::vector<LtCandidate> candidates_;
  size_t best_ = 0;
};

}  // namespace octalane::cli
