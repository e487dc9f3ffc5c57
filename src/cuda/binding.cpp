#include "cuda/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/restage.h"

namespace octalane::cuda {
namespace {

/// The records of each packing, described once; or those that are known already.
class Described {
 public:
  Described(const WeightSpec& spec, int64_t rows, int64_t cols, const Records* encoded) {
    for (const StagedType staged : {StagedType::bf16, StagedType::s8_row, StagedType::s8_block, StagedType::f8_row}) {
      records_.emplace(staged, describe_records(spec, rows, cols, staged));
      whys_.emplace(staged, why_no_records(spec, staged));
    }
    if (encoded != nullptr) *records_.at(encoded->staged) = *encoded;
  }
  /// Null: there are none, for the reason in why().
  const Records* find(StagedType staged) const {
    const Expected<Records>& found = records_.at(packing(staged));
    return found ? &*found : nullptr;
  }
  const std::string& why(StagedType staged) const { return whys_.at(packing(staged)); }

 private:
  static StagedType packing(StagedType staged) {
    return octalane::restaged(staged) ? encoding_of(staged) : StagedType::bf16;
  }
  std::map<StagedType, Expected<Records>> records_;
  std::map<StagedType, std::string> whys_;
};

std::string refused_lane(StagedType staged, const LaneOptions& lanes) {
  if (lanes.allow(staged)) return {};
  if (lanes.forced) return fmt::format("lane {} was asked for", octalane::name(*lanes.forced));
  return "lossy, and not among the lanes that are allowed";
}

std::string refusal_of(const GemmKernel& kernel, const Described& described, const LaneOptions& lanes,
                       StagedSet encodings, const DeviceInfo& device) {
  if (std::string why = refused_lane(kernel.staged, lanes); !why.empty()) return why;
  if (kernel.staged == StagedType::f8_row && kernel.drain == Drain::row) {
    return "sums of whole rows keep fewer bits than the lane promises";
  }
  if (std::string why = why_not(kernel, device); !why.empty()) return why;
  const Records* const records = described.find(kernel.staged);
  if (records == nullptr) return described.why(kernel.staged);
  if (std::string why = why_not(kernel, *records); !why.empty()) return why;
  if (octalane::restaged(kernel.staged) && !encodings.contains(encoding_of(kernel.staged))) {
    return fmt::format("weights were bound without re-encoding for {}", octalane::name(kernel.staged));
  }
  return {};
}

Candidate gemm_candidate(const GemmKernel& kernel, const Described& described) {
  Candidate candidate{.kernel = name(kernel),
                      .staged = kernel.staged,
                      .tile_rows = kernel.rows,
                      .tile_tokens = kernel.tokens,
                      .by_mma = kernel.by_mma(),
                      .gemm = &kernel};
  if (const Records* records = described.find(kernel.staged)) {
    candidate.group = records->group;
    candidate.weight_bytes = read_bytes(*records);
  }
  return candidate;
}

Candidate gemv_candidate(const GemvKernel& kernel, const Described& described, const LaneOptions& lanes,
                         const DeviceInfo& device) {
  Candidate candidate{.kernel = name(kernel),
                      .staged = StagedType::bf16,
                      .tile_tokens = kernel.tokens,
                      .writes_bf16 = false,
                      .refusal = refused_lane(StagedType::bf16, lanes),
                      .gemv = &kernel};
  if (const Records* records = described.find(StagedType::bf16)) {
    candidate.group = records->group;
    candidate.weight_bytes = read_bytes(*records);
    if (candidate.refusal.empty()) candidate.refusal = why_not(kernel, *records, device);
    if (candidate.refusal.empty()) candidate.tile_tokens = tokens_at_once(kernel, *records, device);
  } else if (candidate.refusal.empty()) {
    candidate.refusal = described.why(StagedType::bf16);
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> list_candidates(const WeightSpec& spec, int64_t rows, int64_t cols, const LaneOptions& lanes,
                                       StagedSet encodings, const DeviceInfo& device, const Records* encoded) {
  const Described described(spec, rows, cols, encoded);
  std::vector<Candidate> candidates;
  for (const GemvKernel& kernel : gemv_kernels()) {
    candidates.push_back(gemv_candidate(kernel, described, lanes, device));
  }
  for (const GemmKernel& kernel : gemm_kernels()) {
    candidates.push_back(gemm_candidate(kernel, described));
    candidates.back().refusal = refusal_of(kernel, described, lanes, encodings, device);
  }
  return candidates;
}

Expected<Binding> plan_binding(const WeightSpec& spec, int64_t rows, int64_t cols, const LaneOptions& lanes,
                               StagedSet encodings, const DeviceInfo& device, const Rates* rates) {
  const std::vector<Candidate> candidates = list_candidates(spec, rows, cols, lanes, encodings, device);
  const Expected<Plan> many = choose({kBindingTokens, rows, cols}, candidates, device, rates);
  if (!many) return fail_with(many);
  Binding binding;
  if (octalane::restaged(many->staged)) binding.encoding = encoding_of(many->staged);
  binding.exact = std::ranges::any_of(candidates, [](const Candidate& candidate) {
    return candidate.refusal.empty() && !octalane::restaged(candidate.staged);
  });
  return binding;
}

}  // namespace octalane::cuda
