// What is decided when weights are bound to a device, from their spec and shape alone.
#pragma once

#include <optional>
#include <vector>

#include "core/staged_set.h"
#include "cuda/plan.h"

namespace octalane::cuda {

/// The lanes that weights may take.
struct LaneOptions {
  std::optional<StagedType> forced{};  ///< empty: the fastest of the stock lane and `lossy`
  StagedSet lossy{};

  bool allow(StagedType staged) const {
    if (forced) return staged == *forced;
    return info(staged).stock || lossy.contains(staged);
  }
};

/// Lanes that multiply one re-encoding: s8.row's and s8.xblock's are the same.
constexpr StagedType encoding_of(StagedType staged) {
  return staged == StagedType::s8_xblock ? StagedType::s8_row : staged;
}

/// Tokens for which a re-encoding is chosen where several lanes may: weights have one at most.
inline constexpr int64_t kBindingTokens = 512;

/// All kernels, and why those that cannot run these weights cannot. `encodings`: the re-encodings that the weights
/// have, or may still get. `encoded`: the records of one of them where they are packed already; else what is known of
/// them before.
std::vector<Candidate> list_candidates(const WeightSpec& spec, int64_t rows, int64_t cols, const LaneOptions& lanes,
                                       StagedSet encodings, const DeviceInfo& device, const Records* encoded = nullptr);

/// What weights are kept as on the device.
struct Binding {
  bool exact = false;                    ///< records that are the weights themselves
  std::optional<StagedType> encoding{};  ///< records of a re-encoding
};

/// The re-encoding that the plan for kBindingTokens takes, if it does, and exact records where any kernel reads them.
/// Fails when no kernel of these lanes can serve the weights, and says what each lacked.
Expected<Binding> plan_binding(const WeightSpec& spec, int64_t rows, int64_t cols, const LaneOptions& lanes,
                               StagedSet encodings, const DeviceInfo& device, const Rates* rates);

/// Every re-encoding that there is.
inline constexpr StagedSet kEncodings{StagedType::s8_row, StagedType::s8_block, StagedType::f8_row};

}  // namespace octalane::cuda
